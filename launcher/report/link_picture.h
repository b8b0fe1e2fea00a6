// The bandwidths of a profile as a picture: a heat map in SVG.
#pragma once

#include <string>

#include "core/profile.h"

namespace adaptive_train {

/// One square of a colour for each link, light to dark as it is slow to fast on a logarithmic
/// scale, with its figure where there is room; a scale; marks as in the table. `title` is put on
/// top. Needs no font or file besides itself.
std::string RenderLinkPicture(const Profile& profile, const std::string& title, double now);

}  // namespace adaptive_train
