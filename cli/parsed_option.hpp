// Options whose text the command parses itself.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "megamoe/error.hpp"

namespace megamoe::cli {

/// An option whose text `parse` turns into a value; its errors are the command's.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, Value& value,
                        const Parse& parse, const std::string& help) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, parse, name](const std::string& text) {
            try {
              value = parse(text);
            } catch (const Error& error) {
              throw CLI::ValidationError(name, error.what());
            }
          },
          help)
      ->type_name("");
}

}  // namespace megamoe::cli
