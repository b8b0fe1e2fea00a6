# Shared by every target: language level, warnings, sanitizers, output folders.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

set(ADAPTIVE_TRAIN_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(PMIX REQUIRED IMPORTED_TARGET pmix)

option(ADAPTIVE_TRAIN_WERROR "Warnings are errors; packagers with other compilers may switch it off" ON)
# nvcc's host code has lines that these warnings are not meant for.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wpedantic>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow> $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ADAPTIVE_TRAIN_WERROR}>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports overlaps and overflows in std::string that do not exist (GCC bugs 105651, 105329).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread> $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
endif()
include_directories("${CMAKE_SOURCE_DIR}")
add_compile_definitions(ADAPTIVE_TRAIN_VERSION="${PROJECT_VERSION}")
if(ADAPTIVE_TRAIN_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ADAPTIVE_TRAIN_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${ADAPTIVE_TRAIN_SANITIZE})
  # GCC's manual: beside sanitizers this warning is often wrong.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  if(ADAPTIVE_TRAIN_SANITIZE MATCHES "undefined")
    # The address sanitizer also stops at null pointers and past an object's end, and few types here
    # are polymorphic. Misaligned numbers rarely matter on x86-64 and ARM. These checks, at every access,
    # would take half of the build's time.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,vptr,object-size,alignment,pointer-overflow> $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
  if(ADAPTIVE_TRAIN_SANITIZE MATCHES "thread")
    # GCC warns that this sanitizer does not follow fences. Asio uses them only beside locks, which
    # it follows.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# Two means against compiling the same templates again and again. Headers that most sources parse are precompiled: with the
# flags of libraries, and with those of tests. And sources of a library or of a test program are compiled together (unity
# builds): even an empty source takes two seconds to instantiate what those headers use. Each test's source has a namespace
# of its own for that, as two of them may use a name for different things.
# Off, every source is compiled by itself: it shows that it includes what it uses, and an edited one is built sooner.
option(ADAPTIVE_TRAIN_FAST_BUILD "Precompile common headers, compile sources of a library together" ON)
set(common_headers <algorithm> <array> <chrono> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional> <set> <span>
  <string> <string_view> <thread> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp> <tl/expected.hpp>)
if(ADAPTIVE_TRAIN_FAST_BUILD)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled_headers.cc" CONTENT "")
  add_library(precompiled_headers STATIC "${CMAKE_BINARY_DIR}/precompiled_headers.cc")
  target_link_libraries(precompiled_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(precompiled_headers PRIVATE ${common_headers})
endif()

# adaptive_train_precompile(TARGET...): libraries that use fmt take the common headers. Sources with flags of their own cannot:
# set SKIP_PRECOMPILE_HEADERS for them.
function(adaptive_train_precompile)
  if(ADAPTIVE_TRAIN_FAST_BUILD)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM precompiled_headers)
    endforeach()
  endif()
endfunction()

# adaptive_train_computes(TARGET...): libraries whose loops take a run's time; all others are built sooner at the usual level.
function(adaptive_train_computes)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo>>:-O3>)
  endforeach()
endfunction()

# adaptive_train_unite(TARGET...): common headers, and all sources of a library at once. Sources that use the same names for
# different things set SKIP_UNITY_BUILD_INCLUSION.
function(adaptive_train_unite)
  adaptive_train_precompile(${ARGN})
  if(ADAPTIVE_TRAIN_FAST_BUILD)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# adaptive_train_unite_by_folder(TARGET...): the same with all sources of a folder at once, for libraries of many folders.
function(adaptive_train_unite_by_folder)
  adaptive_train_unite(${ARGN})
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      if(NOT IS_ABSOLUTE "${source}")
        cmake_path(GET source PARENT_PATH folder)
        string(MAKE_C_IDENTIFIER "${target}_${folder}" group)
        set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
      endif()
    endforeach()
  endforeach()
endfunction()

# adaptive_train_test_headers(): what adaptive_train_unit_test reuses. Its flags are those of a test, so it is a program, too.
function(adaptive_train_test_headers)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled_test_headers.cc" CONTENT "int main() {}\n")
  add_executable(precompiled_test_headers EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/precompiled_test_headers.cc")
  target_link_libraries(precompiled_test_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gmock)
  target_compile_options(precompiled_test_headers PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  target_precompile_headers(precompiled_test_headers PRIVATE ${common_headers} <gmock/gmock.h> <gtest/gtest.h>)
endfunction()

# adaptive_train_elsewhere(RESULT [COMPUTE] [CHECKED]): `compute` or `checked` where a test of that kind has its home in
# another build than this one; empty otherwise. Each kind runs where it finds most, and is built once:
# - COMPUTE tests only compute or go by the time that steps take. Their home is a build without sanitizers.
# - CHECKED tests parse, start threads or inject faults, and compute little. Their home is a sanitizer's build.
# - All others run in both.
function(adaptive_train_elsewhere result)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPUTE;CHECKED" "" "")
  set(${result} "" PARENT_SCOPE)
  if(arg_COMPUTE AND ADAPTIVE_TRAIN_SANITIZE)
    set(${result} compute PARENT_SCOPE)
  elseif(arg_CHECKED AND NOT ADAPTIVE_TRAIN_SANITIZE)
    set(${result} checked PARENT_SCOPE)
  endif()
endfunction()

# adaptive_train_not_here(TARGET KIND): its test's home is elsewhere. Here the target KIND_tests builds it.
function(adaptive_train_not_here target kind)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  if(NOT TARGET ${kind}_tests)
    add_custom_target(${kind}_tests)
  endif()
  add_dependencies(${kind}_tests ${target})
endfunction()

# adaptive_train_unit_test(NAME SOURCES a_test.cc ... LIBS lib ... [LABELS label ...] [PREFIX prefix] [COMPUTE | CHECKED])
# One GoogleTest program; every TEST in it becomes a CTest of its own, labelled `unit` unless LABELS says otherwise, its
# name after PREFIX. Where its home is elsewhere its label is `compute` or `checked`.
function(adaptive_train_unit_test name)
  cmake_parse_arguments(arg "COMPUTE;CHECKED" "TIMEOUT;PREFIX" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  adaptive_train_elsewhere(elsewhere ${ARGN})
  if(elsewhere)
    set(arg_LABELS ${elsewhere})
    adaptive_train_not_here(${name} ${elsewhere})
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock)
  if(ADAPTIVE_TRAIN_FAST_BUILD)
    target_link_libraries(${name} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${name} REUSE_FROM precompiled_test_headers)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  # The libraries under test are optimised; tests, and the few sources that a test compiles itself, need only be built soon.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  # UCX reads its variables when it is loaded. Its memory hooks crash under the thread sanitizer
  # when threads end.
  gtest_discover_tests(${name} TEST_PREFIX "${arg_PREFIX}" PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "UCX_MEM_EVENTS=no" DISCOVERY_TIMEOUT 60)
endfunction()
