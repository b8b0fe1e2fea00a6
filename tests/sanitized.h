// Whether a sanitizer is compiled in. Tests then take fewer numbers through the same code.
#pragma once

namespace adaptive_train {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace adaptive_train
