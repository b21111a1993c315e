#pragma once
// Compiled programs of a stage's blocks, each made once. Blocks of one kind in one context share theirs.
#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/array_hash.hpp"
#include "plan/program/footprint.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

struct CompiledBlock {
  BlockProgram program;
  FootprintForm form;
};

class ProgramCache {
 public:
  /// Of the block with this index on its stage; the alignment is the same for all. The reference stays good as long as
  /// the cache.
  const CompiledBlock& get(int index, const StageBlock& block, Bytes alignment, const BlockDecision& d) {
    Alike& blocks = *alike_[static_cast<std::size_t>(alike(index, block))];
    const Key key = {d.before.keep.bits(),
                     d.before.offload.bits(),
                     d.before.quantize.bits(),
                     d.after.keep.bits(),
                     d.after.offload.bits(),
                     d.after.quantize.bits(),
                     static_cast<unsigned long long>(d.after.tiles_per_slice > 0),
                     static_cast<unsigned long long>(d.slices)};
    const auto found = blocks.programs.find(key);
    if (found != blocks.programs.end()) return found->second;
    BlockProgram program = blocks.compiler.compile(d);
    FootprintForm form(program, footprint_setting(block.kind, block.context, alignment));
    return blocks.programs.emplace(key, CompiledBlock{std::move(program), std::move(form)}).first->second;
  }

  /// The same number for blocks of the same kind in the same context that hold the same for their group.
  int alike(int index, const StageBlock& block) {
    const auto i = static_cast<std::size_t>(index);
    if (i >= number_of_.size()) number_of_.resize(i + 1, -1);
    if (number_of_[i] < 0) number_of_[i] = find_or_add(block);
    return number_of_[i];
  }

 private:
  using Key = std::array<unsigned long long, 8>;
  struct Alike {
    explicit Alike(const StageBlock& b) : kind(b.kind), context(b.context), held(b.held), compiler(b.kind, b.context) {}
    BlockKind kind;
    BlockContext context;
    TensorSet held;
    BlockCompiler compiler;
    std::unordered_map<Key, CompiledBlock, ArrayHash> programs;
  };
  int find_or_add(const StageBlock& b) {
    auto at = std::find_if(alike_.begin(), alike_.end(), [&](const auto& a) {
      return a->kind == b.kind && a->context == b.context && a->held == b.held;
    });
    if (at == alike_.end()) at = alike_.insert(at, std::make_unique<Alike>(b));
    return static_cast<int>(at - alike_.begin());
  }
  std::vector<int> number_of_;  // by index on the stage; -1: not seen yet
  std::vector<std::unique_ptr<Alike>> alike_;
};

}  // namespace spillway
