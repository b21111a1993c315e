# Build options and the flags every target gets.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(SPILLWAY_TESTS "Build the tests and benchmarks" ON)
option(SPILLWAY_NATIVE "Tune for the CPU of the build machine (-march=native)" ON)
option(SPILLWAY_WERROR "Treat warnings as errors" OFF)
set(SPILLWAY_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")
set(SPILLWAY_EXTRA_POLICIES "" CACHE STRING "Policies of your own: /path/a.cpp;/path/b.cpp (see CONTRIBUTING.md)")
set(SPILLWAY_BLAS auto CACHE STRING "Matrix products: auto, onednn or blas")

add_library(spillway_flags INTERFACE)
target_include_directories(spillway_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
# No reassociation: gradients are compared bit for bit.
target_compile_options(spillway_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       -fno-fast-math -fno-math-errno $<$<BOOL:${SPILLWAY_NATIVE}>:-march=native>
                       $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
# GCC 12's vectorizer of straight-line code emits wrong constants with AVX-512 (seen: {10, 10, 10, 0} became four tens).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(spillway_flags INTERFACE -fno-tree-slp-vectorize)
endif()
if(SPILLWAY_SANITIZE)
  # Checks of pointers and virtual tables double the time to compile: null is a fault either way, tests check alignment.
  target_compile_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize=null,alignment,vptr -fno-sanitize-recover=all)
  target_link_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
  if(SPILLWAY_SANITIZE MATCHES address)
    target_sources(spillway_flags INTERFACE 
      "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${PROJECT_SOURCE_DIR}/tests/sanitizers/keep_modules.cpp>")
    target_link_options(spillway_flags INTERFACE -Wl,--export-dynamic-symbol=dlclose)
  endif()
endif()
