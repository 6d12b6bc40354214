#include <nanobind/nanobind.h>

#include "megamoe/version.hpp"

#include "python/src/bindings.hpp"

NB_MODULE(_core, module) {
  module.doc() = "The C++ side of megamoe. Use the package megamoe, which documents it.";
  module.attr("__version__") = megamoe::version();
  megamoe::python::bind_errors(module);
  megamoe::python::bind_types(module);
  megamoe::python::bind_groups(module);
  megamoe::python::bind_weights(module);
  megamoe::python::bind_layers(module);
  megamoe::python::bind_checkpoints(module);
  megamoe::python::bind_casts(module);
  megamoe::python::bind_buffers(module);
  megamoe::python::bind_mqa(module);
}
