// Files that are not what they claim: each is a named error, none a crash.
#include <cstring>
#include <functional>

#include "checkpoint/model_folder.hpp"

namespace megamoe::test {
namespace {

std::string file_of(std::uint64_t header_bytes, const std::string& header, std::size_t data) {
  std::string file(sizeof header_bytes, '\0');
  std::memcpy(file.data(), &header_bytes, sizeof header_bytes);
  return file + header + std::string(data, 'd');
}

std::string file_of(const std::string& header, std::size_t data) {
  return file_of(header.size(), header, data);
}

SafetensorsFile parse(const std::string& file) {
  return {std::as_bytes(std::span<const char>(file.data(), file.size())), "x.safetensors"};
}

void refused(const std::string& file, const std::vector<std::string>& parts) {
  SCOPED_TRACE(file.substr(8, 80));
  std::vector<std::string> all = parts;
  all.emplace_back("x.safetensors");
  expect_error(ErrorCode::format, all, [&] { parse(file); });
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

/// A header of one tensor.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{" + entry("t", dtype, shape, offsets) + "}";
}

const std::string kGood = "{\"__metadata__\":{\"format\":\"pt\"}," +
                          entry("a", "\"F32\"", "[2]", "[0,8]") + "," +
                          entry("b", "\"U8\"", "[3]", "[8,11]") + "}";

TEST(BrokenSafetensors, TheExampleThatTheOthersBreakIsGood) {
  EXPECT_EQ(parse(file_of(kGood, 11)).tensors().size(), 2u);
  EXPECT_EQ(parse(file_of(kGood + "     ", 11)).tensors().size(), 2u) << "padded with spaces";
}

TEST(BrokenSafetensors, CutShortAnywhereItIsRefused) {
  const std::string file = file_of(kGood, 11);
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    expect_error(ErrorCode::format, {"x.safetensors"}, [&] { parse(file.substr(0, bytes)); });
    if (HasFailure()) return;
  }
}

TEST(BrokenSafetensors, BytesBehindTheLastTensorAreRefused) {
  refused(file_of(kGood, 12), {"1 bytes behind the last tensor"});
  refused(file_of("{}", 1), {"1 bytes behind the last tensor"});
}

TEST(BrokenSafetensors, AHeaderLengthBeyondTheFileOrTheFormatIsRefused) {
  refused(file_of(kGood.size() + 12, kGood, 11), {"claims a header of"});
  refused(file_of(UINT64_MAX, kGood, 11), {"claims a header of 18446744073709551615"});
  refused(file_of(UINT64_MAX - 7, kGood, 11), {"claims a header of"});
  refused(file_of(0, "", 0), {"does not begin"});
  // The format's bound holds even where the file is long enough.
  refused(file_of(100'000'001, std::string(100'000'001, ' '), 0), {"claims a header of 100000001"});
}

TEST(BrokenSafetensors, AHeaderThatIsNoJsonObjectIsRefused) {
  refused(file_of("[]", 0), {"does not begin with '{'"});
  refused(file_of(" {}", 0), {"does not begin with '{'"});
  refused(file_of("\xEF\xBB\xBF{}", 0), {"does not begin with '{'"});
  refused(file_of("{", 0), {"is no JSON"});
  refused(file_of("{}x", 0), {"is no JSON"});
  refused(file_of(std::string("{}\0x", 4), 0), {"NUL"});
  refused(file_of("{\"\xC3\x28\":1}", 0), {"is no JSON"});
  refused(file_of("{\"\xED\xA0\x80\":1}", 0), {"is no JSON"});
  refused(file_of("{\"t\":1e400}", 0), {"is no JSON"});
}

TEST(BrokenSafetensors, NamesThatComeTwiceAreRefused) {
  const std::string a = entry("a", "\"U8\"", "[1]", "[0,1]");
  refused(file_of("{" + a + "," + a + "}", 1), {"the name 'a' twice"});
  // The same name, spelled differently.
  refused(file_of("{" + a + "," + entry("\\u0061", "\"U8\"", "[1]", "[1,2]") + "}", 2),
          {"the name 'a' twice"});
  refused(file_of("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"F32\"}}", 0), {"the name 'dtype' twice"});
  refused(file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0), {"the name 'k' twice"});
}

TEST(BrokenSafetensors, DeepNestingIsRefusedHoweverDeep) {
  for (const std::size_t depth : {100, 10'000, 5'000'000}) {
    const std::string lists(depth, '[');
    refused(file_of("{\"t\":" + lists, 0), {"nested more than"});
    refused(file_of("{\"t\":" + lists + std::string(depth, ']') + "}", 0), {"nested more than"});
    // Brackets inside a text close nothing.
    refused(file_of("{\"" + std::string(depth, ']') + "\":" + lists, 0), {"nested more than"});
  }
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  refused(file_of(objects, 0), {"nested more than"});
}

TEST(BrokenSafetensors, BracketsInNamesAreNoNesting) {
  const std::string name(5000, '[');
  EXPECT_TRUE(parse(file_of("{" + entry(name, "\"U8\"", "[1]", "[0,1]") + "}", 1)).has(name));
}

TEST(BrokenSafetensors, EntriesWithoutTheirThreePartsAreRefused) {
  refused(file_of("{\"t\":3}", 0), {"tensor t", "'dtype'"});
  refused(file_of("{\"t\":null}", 0), {"tensor t", "'dtype'"});
  refused(file_of("{\"t\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0), {"tensor t", "'dtype'"});
  refused(file_of("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0), {"tensor t", "'shape'"});
  refused(file_of("{\"t\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0), {"tensor t", "'data_offsets'"});
}

TEST(BrokenSafetensors, UnknownTypesAreRefused) {
  refused(file_of(one("\"F31\"", "[1]", "[0,4]"), 4), {"tensor t", "unknown dtype \"F31\""});
  refused(file_of(one("\"f32\"", "[1]", "[0,4]"), 4), {"tensor t", "unknown dtype"});
  refused(file_of(one("32", "[1]", "[0,4]"), 4), {"tensor t", "unknown dtype 32"});
  refused(file_of(one("\"" + std::string(100'000, 'F') + "\"", "[1]", "[0,4]"), 4),
          {"tensor t", "unknown dtype"});
}

TEST(BrokenSafetensors, ShapesThatAreNoListsOfSizesAreRefused) {
  for (const char* shape : {"4", "null", "{}", "[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]",
                            "[1e0]", "[18446744073709551615]", "[99999999999999999999]"}) {
    refused(file_of(one("\"F32\"", shape, "[0,4]"), 4), {"tensor t"});
  }
}

TEST(BrokenSafetensors, SizesThatOverflowAreRefused) {
  // Products that come to 4 bytes, or to 0, modulo 2^64.
  for (const char* shape : {"[4611686018427387905]", "[4294967296,4294967296]",
                            "[9223372036854775807,2]", "[2147483648,2147483648,2147483648]"}) {
    refused(file_of(one("\"F32\"", shape, "[0,4]"), 4), {"tensor t", "too large"});
    refused(file_of(one("\"F32\"", shape, "[0,0]"), 0), {"tensor t", "too large"});
  }
}

TEST(BrokenSafetensors, OffsetsThatDoNotFitAreRefused) {
  for (const char* offsets :
       {"[4,0]", "[0,5]", "[0,8]", "[1,5]", "[-4,0]", "[0]", "[]", "[0,4,8]", "[0,4.0]", "4",
        "[\"0\",\"4\"]", "[0,18446744073709551615]", "[9223372036854775807,9223372036854775807]"}) {
    refused(file_of(one("\"F32\"", "[1]", offsets), 4), {"tensor t"});
  }
}

TEST(BrokenSafetensors, BytesThatDoNotMatchTheShapeAreRefused) {
  refused(file_of(one("\"F32\"", "[2]", "[0,4]"), 4), {"tensor t", "4 bytes", "64 bits"});
  refused(file_of(one("\"F32\"", "[0]", "[0,4]"), 4), {"tensor t"});
  refused(file_of(one("\"F32\"", "[]", "[0,0]"), 0), {"tensor t"});
  refused(file_of(one("\"F4\"", "[3]", "[0,1]"), 1), {"tensor t", "12 bits"});
  refused(file_of(one("\"F4\"", "[3]", "[0,2]"), 2), {"tensor t", "12 bits"});
}

TEST(BrokenSafetensors, OverlapsAndHolesAreRefused) {
  const auto two = [](const char* a, const char* b) {
    return "{" + entry("a", "\"U8\"", "[4]", a) + "," + entry("b", "\"U8\"", "[4]", b) + "}";
  };
  EXPECT_EQ(parse(file_of(two("[4,8]", "[0,4]"), 8)).tensors().size(), 2u) << "any order is good";
  refused(file_of(two("[0,4]", "[3,7]"), 7), {"overlap or leave a hole at byte 4"});
  refused(file_of(two("[0,4]", "[0,4]"), 4), {"overlap or leave a hole at byte 4"});
  refused(file_of(two("[0,4]", "[5,9]"), 9), {"overlap or leave a hole at byte 4"});
  refused(file_of(two("[1,5]", "[5,9]"), 9), {"overlap or leave a hole at byte 0"});
  refused(file_of("{" + entry("a", "\"U8\"", "[4]", "[0,4]") + "," +
                      entry("b", "\"U8\"", "[0]", "[2,2]") + "}",
                  4),
          {"overlap or leave a hole"});
}

TEST(BrokenSafetensors, MetadataThatIsNoMapOfTextsIsRefused) {
  for (const char* metadata : {"3", "[]", "\"a\"", "{\"a\":1}", "{\"a\":{}}", "{\"a\":null}"}) {
    refused(file_of("{\"__metadata__\":" + std::string(metadata) + "}", 0), {"__metadata__"});
  }
}

TEST(BrokenSafetensors, AnyOneByteChangedGivesAnErrorOrTensorsInsideTheFile) {
  const std::string good = file_of(kGood, 11);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string file = good;
      file[at] = static_cast<char>(value);
      try {
        const SafetensorsFile parsed = parse(file);
        for (const auto& [name, tensor] : parsed.tensors()) {
          const auto* begin = reinterpret_cast<const std::byte*>(file.data());
          ASSERT_TRUE(tensor.bytes.data() >= begin &&
                      tensor.bytes.data() + tensor.bytes.size() <= begin + file.size())
              << "byte " << at << " is " << value;
        }
      } catch (const Error& error) {
        ASSERT_EQ(static_cast<int>(error.code()), static_cast<int>(ErrorCode::format))
            << "byte " << at << " is " << value << ": " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace megamoe::test
