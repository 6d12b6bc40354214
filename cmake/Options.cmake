# Compiler options that every target of the project shares.
add_library(megamoe_options INTERFACE)
target_compile_options(megamoe_options INTERFACE
  -Wall -Wextra
  # Designated initialisers leave out what has a default: that is what they are for.
  -Wno-missing-field-initializers
  # Bits must not depend on whether a compiler fuses a multiply and an add: code that wants an fma says so.
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in std::string's own concatenation (its bug 105329).
  target_compile_options(megamoe_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(MEGAMOE_WERROR)
  target_compile_options(megamoe_options INTERFACE -Werror)
endif()
if(MEGAMOE_FUZZ)
  set(MEGAMOE_SANITIZE fuzzer-no-link,address,undefined)
endif()
if(MEGAMOE_SANITIZE)
  target_compile_options(megamoe_options INTERFACE
    -fsanitize=${MEGAMOE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(megamoe_options INTERFACE -fsanitize=${MEGAMOE_SANITIZE})
  # For tests: clang has no macro that says so.
  target_compile_definitions(megamoe_options INTERFACE MEGAMOE_SANITIZED)
endif()
