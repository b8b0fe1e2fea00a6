// Draws a simulated step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/simulator/simulator.h"

namespace adaptive_train {

inline constexpr int kPicturedRows = 64;

/// An SVG 1.1 document: a row for each of the first kPicturedRows ranks, named by `labels` (index
/// = rank; untrusted text), time from left to right with an axis in seconds or milliseconds, the
/// colours that occur explained above. Numbers are micro-batches, from 0; later chunks of a rank are
/// paler. Waiting is a gap. An exchange that
/// runs beside backward shows under it.
std::string TimelineSvg(std::span<const Span> timeline, const std::vector<std::string>& labels,
                        const std::string& title);

/// The last step of a simulation of `layout`; ranks are named by their nodes and stages.
std::string TimelineSvg(const PlanProblem& problem, const Layout& layout,
                        const Simulation& simulation);

}  // namespace adaptive_train
