// JSON as files bring it: parsed without trust.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace megamoe {

/// Levels of lists and objects that a text may have. Configurations have about 6; whatever walks a
/// parsed text recursively (dump, copies) is safe at this depth.
inline constexpr int kMaxJsonDepth = 64;

/// An object at the top, UTF-8, no key twice in one object (a map would keep one in silence), at
/// most kMaxJsonDepth levels. Throws Error{format}; `what` names the text in messages.
nlohmann::json parse_json(std::string_view text, const std::string& what);

/// Reads and parses. Throws Error{io} when the system refuses, Error{format} as parse_json.
nlohmann::json read_json(const std::filesystem::path& path);

/// The value as JSON for a message: its beginning where it is long.
std::string shown(const nlohmann::json& value);

/// A text out of a file for a message: its beginning where it is long.
std::string shown(std::string text);

}  // namespace megamoe
