// Why ranks could not be wired up, by what all of them have said.
#pragma once

#include <span>
#include <string>

#include "launcher/steps/diagnosis.h"

namespace adaptive_train {

/// Part of a line. Where ranks failed in their first sum: who waited for whom, as FindStallCause
/// has it. In a PMIx call: all ranks that failed there, as PMIx does not say whom it waited for.
/// Where none has failed: those that did not report in time.
std::string DescribeWireup(std::span<const RankRecord> ranks);

}  // namespace adaptive_train
