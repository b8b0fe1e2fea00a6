// Draws the bandwidths of a profile as a heat map in SVG.
#pragma once

#include <string>

#include "core/profile.h"

namespace adaptive_train {

/// One square per link, light for slow to dark for fast on a logarithmic scale, with its figure if
/// there is room. A scale, and marks as in the table. `title` is put on top. Needs no font or other
/// file.
std::string RenderLinkPicture(const Profile& profile, const std::string& title, double now);

}  // namespace adaptive_train
