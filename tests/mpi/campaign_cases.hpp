#pragma once
// Small cases by chance: every dimension of a case is drawn from a short list, and as many cases in a row as the list is
// long take each of its values once.
#include <initializer_list>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "support.hpp"

namespace spillway::test {

/// Numbers drawn one after the other; the same on every rank for the same key.
class Draw {
 public:
  template <class... Ints>
  explicit Draw(std::uint64_t seed, Ints... purpose) : random_(seed, static_cast<std::uint64_t>(purpose)...) {}
  /// In {0, ..., n-1}.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(next_++, static_cast<std::uint64_t>(n)));
  }
  double uniform() { return random_.uniform(next_++); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  CounterRandom random_;
  std::uint64_t next_ = 0;
};

/// A case and what it was made from.
struct RandomCase {
  std::vector<std::string> settings;  ///< over inputs/runs/tiny.toml, as --set takes them
  Case drawn;
  Bytes least;  ///< memory.cap under which a policy that adapts can run at any load
  Bytes keep;   ///< what keeping everything needs at the loads of the case
};

/// Case `index` of the campaign of `ranks` ranks. The cap lies between the least feasible one and what keeping everything
/// needs, both included.
RandomCase random_case(int ranks, std::int64_t index);

/// The largest least_cap of any stage.
Bytes least_cap_of(const Trial& trial);

/// "--set key=value --set ...", to be pasted into a command line.
std::string as_arguments(const std::vector<std::string>& settings);

}  // namespace spillway::test
