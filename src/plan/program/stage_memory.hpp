#pragma once
// The books of a stage as a policy reads them: what is held now, and what may still be spent on a (micro-batch, block) if
// everything undecided gets the least treatment. Closed at issue; never sees a clock.
#include <span>
#include <vector>

#include "plan/program/footprint.hpp"
#include "plan/program/task_script.hpp"

namespace spillway {

/// Limits of a block's footprint such that the rest of the iteration still fits with the least treatment.
struct Budget {
  Bytes forward;   ///< of Footprint::forward
  Bytes held;      ///< of Footprint::held
  Bytes ready;     ///< of held + reloaded, while the block after it goes backward
  Bytes backward;  ///< of Footprint::backward
  Bytes host;      ///< of Footprint::host
};
bool fits(const Footprint& footprint, const Budget& budget);
/// The same once the gate has run: what came before it is past.
bool fits_after_gate(const Footprint& footprint, const Budget& budget);

class StageMemory {
 public:
  struct Setup {
    std::vector<StageBlock> blocks;
    std::vector<Task> order;
    Bytes fixed;                   ///< parameters, gradients, optimizer state
    Bytes cap, host_cap;           ///< of the device and of the host tier
    std::vector<Footprint> least;  ///< per block: full recompute with the finest slices at the worst load
  };
  explicit StageMemory(Setup setup);

  /// Back to the start of an iteration, nothing decided.
  void restart();
  /// Moves past one item; items come in the order of the scripts. A forward block must have been decided.
  void advance();
  const Item& current() const { return items_[at_]; }
  /// The backward pass that runs beside the current item, a forward with beside_next.
  const Item& beside_current() const { return items_[at_ + 1]; }
  bool finished() const { return at_ == items_.size(); }

  /// The fused unit whose first item is the current one: its two tasks, forward first. Empty elsewhere.
  std::span<const Task> unit() const;
  /// Replaces that unit by its backward task and then its forward task, for this iteration: the order of plain 1F1B.
  void take_in_turn();

  /// The footprint of a decision; counts from now on.
  void decide(int micro_batch, int block, const Footprint& footprint);
  const Footprint& decided(int micro_batch, int block) const { return footprints_[index(micro_batch, block)]; }
  const Footprint& least(int block) const { return setup_.least[static_cast<std::size_t>(block)]; }

  /// Of the block whose forward pass is the current item; whatever it is decided to be itself.
  Budget budget(int micro_batch, int block) const;
  /// What undecided blocks would take if they could, [block]: keeping everything at the load that is expected.
  void expect(std::vector<Footprint> all) { all_ = std::move(all); }
  /// What they take at least, [block], without repeating or slicing a dispatch, at the load that is expected.
  void expect_at_least(std::vector<Footprint> whole) { least_whole_ = std::move(whole); }
  /// Of the block whose forward pass is the current item, if `mine` is what it would take: the part, up to 1, of what it
  /// wishes to hold beyond the least that it can have if every undecided block that lives beside it gets the same part, and
  /// all have room for their passes.
  double level_share(const Footprint& mine) const;
  /// Whether the passes of the next unit to begin have room beside each other if undecided blocks take what is expected at
  /// least.
  bool next_unit_has_room() const;
  /// Forward passes from the current task on, itself included, before the next backward pass: among so many
  /// micro-batches the memory that is left has to do.
  int forwards_before_backward() const;
  /// Live device bytes between items: fixed, held and reloaded.
  Bytes level() const { return level_; }
  Bytes host_level() const { return host_; }
  Bytes cap() const { return setup_.cap; }
  Bytes host_cap() const { return setup_.host_cap; }

  /// Peak of a whole iteration if every block has the footprint it is decided to have, or else the least.
  Bytes forecast() const;

 private:
  std::size_t index(int micro_batch, int block) const {
    return static_cast<std::size_t>(micro_batch) * setup_.blocks.size() + static_cast<std::size_t>(block);
  }
  /// Peak while items_[i] runs at `level`, which moves past it. Beside a backward pass, that of both.
  Bytes run(std::size_t i, Bytes& level) const;
  const Footprint& footprint_of(const Item& item) const { return footprints_[index(item.micro_batch, item.block)]; }
  class Wished;
  /// Device bytes that items_[i], a forward, finds taken by the backward pass beside it, over the level before both.
  Bytes beside(std::size_t i) const;

  void make_items();

  Setup setup_;
  std::vector<Task> order_;  ///< of this iteration: setup_.order, with the units that are taken in turn
  std::vector<Item> items_;
  std::vector<std::size_t> first_item_;  ///< of each task
  std::size_t at_ = 0;
  Bytes level_, host_;
  std::vector<Footprint> footprints_;         ///< [micro-batch, block]
  std::vector<bool> decided_;                 ///< [micro-batch, block]
  std::vector<Footprint> all_, least_whole_;  ///< [block] expected; the least treatment until something is
};

}  // namespace spillway
