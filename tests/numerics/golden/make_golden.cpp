// Writes the golden tables of tests/numerics/golden from CUDA's headers: make_numerics_golden
// <folder>.
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/os.h>

#include "numerics/chosen_floats.hpp"
#include "numerics/cuda_oracle.hpp"
#include "numerics/golden/domains.hpp"

namespace megamoe::test {
namespace {

struct Table {
  std::string name;
  std::string type;
  int digits;
  std::vector<std::uint32_t> values;
};

void write(const std::string& folder, const std::string& format, const std::vector<Table>& tables) {
  fmt::ostream out = fmt::output_file(folder + "/" + format + ".hpp");
  out.print("// Made by make_numerics_golden from CUDA's headers.\n#pragma once\n\n");
  out.print("#include <cstdint>\n\n// clang-format off\nnamespace megamoe::test::golden {{\n");
  for (const Table& table : tables) {
    out.print("\ninline constexpr {} {}[] = {{", table.type, table.name);
    const std::size_t per_line = 96 / static_cast<std::size_t>(table.digits + 3);
    for (std::size_t i = 0; i < table.values.size(); ++i) {
      out.print("{}0x{:0{}X},", i % per_line == 0 ? "\n  " : "", table.values[i], table.digits);
    }
    out.print("\n}};\n");
  }
  out.print("\n}}  // namespace megamoe::test::golden\n");
}

/// encode(x) for every chosen float.
template <class Encode>
std::vector<std::uint32_t> encoded(Encode encode) {
  std::vector<std::uint32_t> values;
  for (std::uint32_t bits : chosen_floats()) values.push_back(encode(f32_from_bits(bits)));
  return values;
}

/// The f32 bits of decode(code) for code = 0, step, 2 step ... below `codes`.
template <class Decode>
std::vector<std::uint32_t> decoded(Decode decode, DecodeDomain domain) {
  std::vector<std::uint32_t> values;
  for (std::uint32_t code = 0; code < domain.codes; code += domain.step) {
    values.push_back(f32_bits(decode(code)));
  }
  return values;
}

void write_all(const std::string& folder) {
  const std::string bytes = "std::uint8_t";
  const std::string halves = "std::uint16_t";
  const std::string words = "std::uint32_t";
  write(folder, "bf16",
        {{"kBf16Encoded", halves, 4, encoded(cuda::float_to_bf16)},
         {"kBf16Decoded", words, 8, decoded(cuda::bf16_to_float, kHalfDomain)}});
  write(folder, "f16",
        {{"kF16Encoded", halves, 4, encoded(cuda::float_to_f16)},
         {"kF16Decoded", words, 8, decoded(cuda::f16_to_float, kHalfDomain)}});
  write(folder, "e4m3",
        {{"kE4m3Encoded", bytes, 2, encoded(cuda::float_to_e4m3)},
         {"kE4m3Decoded", words, 8, decoded(cuda::e4m3_to_float, kByteDomain)}});
  write(folder, "e2m1",
        {{"kE2m1Encoded", bytes, 2, encoded(cuda::float_to_e2m1)},
         {"kE2m1Decoded", words, 8, decoded(cuda::e2m1_to_float, kNibbleDomain)}});
  const auto magnitude_to_ue8m0 = [](float x) {
    return cuda::float_to_ue8m0_up(f32_from_bits(magnitude_bits(x)));
  };
  write(folder, "ue8m0",
        {{"kUe8m0Encoded", bytes, 2, encoded(magnitude_to_ue8m0)},
         {"kUe8m0Decoded", words, 8, decoded(cuda::ue8m0_to_float, kByteDomain)}});
}

}  // namespace
}  // namespace megamoe::test

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: make_numerics_golden <folder>\n");
    return 2;
  }
  megamoe::test::write_all(argv[1]);
  return 0;
}
