// The parts of the module megamoe._core, one function per file of this folder.
#pragma once

#include <nanobind/nanobind.h>

namespace megamoe::python {

void bind_errors(nanobind::module_& module);
void bind_types(nanobind::module_& module);
void bind_groups(nanobind::module_& module);
void bind_weights(nanobind::module_& module);
void bind_layers(nanobind::module_& module);
void bind_checkpoints(nanobind::module_& module);
void bind_casts(nanobind::module_& module);
void bind_buffers(nanobind::module_& module);
void bind_mqa(nanobind::module_& module);

}  // namespace megamoe::python
