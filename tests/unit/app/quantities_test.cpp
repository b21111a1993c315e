// Sizes and times with units.
#include "app/option_table.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

using testing::HasSubstr;

Case with(const std::string& key, const std::string& text) {
  Case c;
  assign(c, {key, value_of_text(text), {"--set"}});
  return c;
}

TEST(Sizes, TakeBinaryAndDecimalUnitsOrPlainBytes) {
  const auto cap = [](const std::string& text) { return with("memory.cap", text).memory.cap.value; };
  EXPECT_EQ(cap("24 MiB"), 24 << 20);
  EXPECT_EQ(cap("24MiB"), 24 << 20);
  EXPECT_EQ(cap("\"24 MiB\""), 24 << 20);
  EXPECT_EQ(cap("64 GB"), 64'000'000'000);
  EXPECT_EQ(cap("1.5 GiB"), 3 << 29);
  EXPECT_EQ(cap("12 kB"), 12'000);
  EXPECT_EQ(cap("7 B"), 7);
  EXPECT_EQ(cap("12345"), 12345);
}

TEST(Sizes, RefuseOtherUnitsFractionsOfBytesAndPlainFractions) {
  const auto error = [](const std::string& text) { return input_error_of([&] { with("memory.cap", text); }); };
  EXPECT_THAT(error("24 Mib"), HasSubstr("MiB"));
  EXPECT_THAT(error("24 MiB MiB"), HasSubstr("units"));
  EXPECT_THAT(error("MiB"), HasSubstr("units"));
  EXPECT_THAT(error("0.3 B"), HasSubstr("between 1 and"));
  EXPECT_THAT(error("1.3 B"), HasSubstr("whole bytes"));
  EXPECT_THAT(error("1e6"), HasSubstr("whole number"));
  EXPECT_THAT(error("nan GiB"), HasSubstr("finite"));
  EXPECT_THAT(error("8388608 TiB"), HasSubstr("between"));  // 2^63
}

TEST(Times, TakeUnitsOrPlainSeconds) {
  const auto restart = [](const std::string& text) {
    return with("machine.restart_seconds", text).machine.restart_seconds.value;
  };
  EXPECT_EQ(restart("284 s"), 284);
  EXPECT_EQ(restart("284"), 284);
  EXPECT_EQ(restart("0.25"), 0.25);
  EXPECT_DOUBLE_EQ(restart("250 ms"), 0.25);
  EXPECT_DOUBLE_EQ(restart("5us"), 5e-6);
  EXPECT_DOUBLE_EQ(restart("2 min"), 120);
  EXPECT_THAT(input_error_of([&] { restart("284 sec"); }), HasSubstr("units ns, us, ms, s"));
}

}  // namespace
}  // namespace spillway::app
