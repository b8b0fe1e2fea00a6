// A schedule as a picture: as it was planned and, below, as it was measured.
#pragma once

#include <string>

#include "core/schedule/play.h"

namespace adaptive_train {

/// An SVG 1.1 document (TimelineSvg) with a row for each rank, named by its number; with `measured`,
/// which has as many ranks, a second one below it. Forwards, backwards and updates are drawn in
/// full, reduces and gathers under them; sends and receives are not. The title tells both
/// makespans and bubbles.
std::string ScheduleSvg(const SchedulePlay& planned, const SchedulePlay* measured,
                        const std::string& name);

}  // namespace adaptive_train
