# What every target of the project shares: language level, warnings, sanitizers, where outputs go.
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
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${ADAPTIVE_TRAIN_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string that are not there (its bug 105651).
  add_compile_options(-Wno-restrict)
endif()
include_directories("${CMAKE_SOURCE_DIR}")
add_compile_definitions(ADAPTIVE_TRAIN_VERSION="${PROJECT_VERSION}")
if(ADAPTIVE_TRAIN_SANITIZE)
  add_compile_options(-fsanitize=${ADAPTIVE_TRAIN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ADAPTIVE_TRAIN_SANITIZE})
  if(ADAPTIVE_TRAIN_SANITIZE MATCHES "undefined")
    # The address sanitizer stops at null pointers and past an object's end too, and few types here are polymorphic: these
    # checks, at every access, take a fifth of the build's time.
    add_compile_options(-fno-sanitize=null,vptr,object-size -fno-sanitize-recover=undefined)
  endif()
  if(ADAPTIVE_TRAIN_SANITIZE MATCHES "thread")
    # GCC warns that this sanitizer does not follow fences. Asio has them beside its locks, which it does follow.
    add_compile_options(-Wno-tsan)
  endif()
endif()

# adaptive_train_unit_test(NAME SOURCES a_test.cc ... LIBS lib ... [LABELS label ...] [PREFIX prefix] [COMPUTE])
# One GoogleTest program; every TEST in it becomes a CTest of its own, labelled `unit` unless LABELS says otherwise, its
# name after PREFIX.
# COMPUTE marks programs that only compute or go by the time that steps take: they parse nothing, start no thread and
# inject no fault. In a sanitizer's build they have the label `compute` and are built by the target compute_tests.
function(adaptive_train_unit_test name)
  cmake_parse_arguments(arg "COMPUTE" "TIMEOUT;PREFIX" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  if(arg_COMPUTE AND ADAPTIVE_TRAIN_SANITIZE)
    set(arg_LABELS compute)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    if(NOT TARGET compute_tests)
      add_custom_target(compute_tests)
    endif()
    add_dependencies(compute_tests ${name})
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock)
  # The libraries under test are optimised; tests, and the few sources that a test compiles itself, need only be built soon.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  # UCX reads its variables as it is loaded. Its memory hooks crash under the thread sanitizer as threads end.
  gtest_discover_tests(${name} TEST_PREFIX "${arg_PREFIX}" PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "UCX_MEM_EVENTS=no" DISCOVERY_TIMEOUT 60)
endfunction()
