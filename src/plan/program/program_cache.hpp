#pragma once
// Compiled programs of a stage's blocks, each made once.
#include <array>
#include <map>

#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

class ProgramCache {
 public:
  /// `index` tells blocks of different contexts apart. The reference stays good as long as the cache.
  const BlockProgram& get(int index, const StageBlock& block, const BlockDecision& d) {
    const Key key = {static_cast<unsigned long long>(index),
                     d.before.keep.bits(),
                     d.before.offload.bits(),
                     d.before.quantize.bits(),
                     d.after.keep.bits(),
                     d.after.offload.bits(),
                     d.after.quantize.bits(),
                     static_cast<unsigned long long>(d.after.tiles_per_slice > 0),
                     static_cast<unsigned long long>(d.slices)};
    const auto found = programs_.find(key);
    if (found != programs_.end()) return found->second;
    return programs_.emplace(key, compile(block.kind, block.context, d)).first->second;
  }

 private:
  using Key = std::array<unsigned long long, 9>;
  std::map<Key, BlockProgram> programs_;
};

}  // namespace spillway
