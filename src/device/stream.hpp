#pragma once
// Where device work is issued. Every kernel and product says what it handled; the clock turns the sum into seconds.
#include <Kokkos_Core.hpp>
#include <cstdint>

#include "base/units.hpp"

namespace spillway::device {

/// What a kernel or product really handled: floating-point operations of matrix products, and bytes. Convention: every
/// matrix argument counts its bytes once, an output that is accumulated into counts twice (read and written).
struct Work {
  Flops flops{};
  Bytes bytes{};
  Work& operator+=(const Work& o) {
    flops += o.flops;
    bytes += o.bytes;
    return *this;
  }
  bool operator==(const Work&) const = default;
};

/// An in-order queue of device work. The host backend executes at once.
class Stream {
 public:
  /// Adds work done outside parallel_for (matrix products).
  void charge(Work work) { work_ += work; }
  /// The work charged since the last call.
  Work take() {
    const Work taken = work_;
    work_ = {};
    return taken;
  }
  /// Runs body(i) for i in [0, n), in any order.
  template <class Body>
  void parallel_for(const char* name, std::int64_t n, Work work, const Body& body) {
    charge(work);
    if (n > 0) Kokkos::parallel_for(name, Kokkos::RangePolicy<Kokkos::IndexType<std::int64_t>>(0, n), body);
  }

 private:
  Work work_;
};

}  // namespace spillway::device
