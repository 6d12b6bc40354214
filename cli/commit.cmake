# cmake -DSOURCE=... -DOUTPUT=... -P commit.cmake: writes which commit is being built, only when it has changed.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#include \"cli/commit.hpp\"

namespace megamoe::cli {

const char* commit() {
  return \"${commit}\";
}

}  // namespace megamoe::cli
")
