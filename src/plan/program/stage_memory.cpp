#include "plan/program/stage_memory.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace spillway {

using Kind = Item::Kind;

bool fits(const Footprint& f, const Budget& b) {
  return f.forward <= b.forward && f.held <= b.held && f.held + f.reloaded <= b.ready && f.backward <= b.backward &&
         f.host <= b.host;
}

bool fits_after_gate(const Footprint& f, const Budget& b) {
  Footprint rest = f;
  rest.forward = f.after_gate;
  return fits(rest, b);
}

StageMemory::StageMemory(Setup setup) : setup_(std::move(setup)) {
  int micro_batches = 0;
  for (const Task& t : setup_.order) micro_batches = std::max(micro_batches, t.micro_batch + 1);
  all_ = least_whole_ = setup_.least;
  footprints_.resize(static_cast<std::size_t>(micro_batches) * setup_.blocks.size());
  restart();
}

void StageMemory::make_items() {
  items_.clear();
  first_item_.clear();
  for (std::size_t t = 0; t < order_.size(); ++t) {
    first_item_.push_back(items_.size());
    const auto script = task_script(order_, t, setup_.blocks);
    items_.insert(items_.end(), script.begin(), script.end());
  }
}

void StageMemory::restart() {
  if (order_ != setup_.order) {
    order_ = setup_.order;
    make_items();
  }
  at_ = 0;
  level_ = setup_.fixed;
  host_ = Bytes(0);
  decided_.assign(footprints_.size(), false);
  for (std::size_t i = 0; i < footprints_.size(); ++i) footprints_[i] = setup_.least[i % setup_.blocks.size()];
}

std::span<const Task> StageMemory::unit() const {
  // the last task whose items begin here: the second one of a unit has none of its own
  const auto task = std::upper_bound(first_item_.begin(), first_item_.end(), at_);
  if (finished() || task == first_item_.begin() || *(task - 1) != at_) return {};
  const auto t = static_cast<std::size_t>(task - first_item_.begin()) - 1;
  return order_[t].beside_next ? std::span(order_).subspan(t, 2) : std::span<const Task>{};
}

void StageMemory::take_in_turn() {
  const auto unit_tasks = unit();
  ensure(!unit_tasks.empty(), "no fused unit begins here");
  const auto t = static_cast<std::size_t>(unit_tasks.data() - order_.data());
  order_[t].beside_next = false;
  std::swap(order_[t], order_[t + 1]);
  const std::size_t items = items_.size();
  make_items();
  ensure(items_.size() == items && first_item_[t] == at_, "a unit in turn has other items than the unit");
}

Bytes StageMemory::beside(std::size_t i) const {
  if (!items_[i].beside_next) return Bytes(0);
  const Footprint& other = footprint_of(items_[i + 1]);
  return other.backward - other.held - other.reloaded;
}

Bytes StageMemory::run(std::size_t i, Bytes& level) const {
  const Footprint& f = footprint_of(items_[i]);
  switch (items_[i].kind) {
    case Kind::forward: {
      const Bytes peak = level + beside(i) + f.forward;
      level += f.held;
      return peak;
    }
    case Kind::reload:
      return level += f.reloaded;
    case Kind::backward:
      level -= f.held + f.reloaded;
      return level + f.backward;
    default:
      return level;
  }
}

void StageMemory::advance() {
  run(at_, level_);
  const Item& item = items_[at_++];
  const Footprint& f = footprint_of(item);
  if (item.kind == Kind::forward) host_ += f.host;
  if (item.kind == Kind::reload) host_ -= f.host;
}

void StageMemory::decide(int micro_batch, int block, const Footprint& footprint) {
  footprints_[index(micro_batch, block)] = footprint;
  decided_[index(micro_batch, block)] = true;
}

Budget StageMemory::budget(int micro_batch, int block) const {
  ensure(at_ < items_.size() && items_[at_].kind == Kind::forward && items_[at_].micro_batch == micro_batch &&
             items_[at_].block == block,
         "a budget is asked for micro-batch {}, block {}, which is not next", micro_batch, block);
  const Footprint& mine = footprints_[index(micro_batch, block)];
  const Bytes cap = setup_.cap;
  Budget b;
  b.forward = cap - level_ - beside(at_);
  b.host = setup_.host_cap - host_;
  Bytes level = level_;
  run(at_, level);
  b.backward = cap;
  // Peaks until the reloads of the block, and from then on.
  std::array<Bytes, 2> peaks{mine.held, mine.held + mine.reloaded};
  std::size_t reloaded = 0;
  const auto is_own = [&](const Item& item) { return item.micro_batch == micro_batch && item.block == block; };
  for (std::size_t i = at_ + 1; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (is_own(item)) {
      if (item.kind == Kind::backward) {
        b.backward = std::min(b.backward, cap - (level - mine.held - mine.reloaded));
        break;
      }
      if (item.kind == Kind::reload) reloaded = 1;
    }
    if (item.beside_next && is_own(items_[i + 1])) {
      b.backward = cap - (level - mine.held - mine.reloaded) - footprint_of(item).forward;
      run(i, level);
      continue;
    }
    peaks[reloaded] = std::max(peaks[reloaded], run(i, level));
  }
  const Bytes slack_held = cap - peaks[0], slack_ready = cap - peaks[1];
  b.held = mine.held + slack_held;
  b.ready = mine.held + mine.reloaded + slack_ready;
  return b;
}

/// A stage from its current item on, in which undecided blocks hold a base and a part of what they wish beyond it, the same
/// for all, and their passes take what the wish takes.
class StageMemory::Wished {
 public:
  /// `base`, `wish`: [block]; `mine`: the wish of the current item's block.
  Wished(const StageMemory& memory, const std::vector<Footprint>& base, const std::vector<Footprint>& wish,
         const Footprint& mine)
      : memory_(memory), current_(memory.current()), base_(base), wish_(wish), mine_(mine), level_(memory.level_) {}

  /// What item i leaves of the cap while it runs, and what the parts that are held beside it come to when they are whole.
  struct Room {
    Bytes left, wished;
  };
  Room pass(std::size_t i) {
    const Item& x = memory_.items_[i];
    if (x.kind != Kind::forward && x.kind != Kind::reload && x.kind != Kind::backward)
      return {memory_.setup_.cap - level_, parts_};
    const Block b = block_of(x);
    const Bytes extra = b.extra();
    Bytes peak = level_, parts = parts_;
    if (x.kind == Kind::forward) {
      peak += std::max(b.base.forward, b.wish.forward);
      if (x.beside_next) {
        const Block other = block_of(memory_.items_[i + 1]);
        peak += other.backward() - other.base.held - other.base.reloaded - other.extra();
      }
      level_ += b.base.held;
      parts_ += extra;
    } else if (x.kind == Kind::reload) {  // all of it comes back
      peak = level_ += b.base.reloaded + extra;
      parts = parts_ -= extra;
    } else {
      level_ -= b.base.held + b.base.reloaded + extra;
      peak = level_ + b.backward();
    }
    return {memory_.setup_.cap - peak, parts};
  }
  bool is_current(const Item& x) const { return x.micro_batch == current_.micro_batch && x.block == current_.block; }

 private:
  struct Block {
    const Footprint &base, &wish;
    Bytes extra() const { return std::max(Bytes(0), wish.held - base.held); }
    Bytes backward() const { return std::max(base.backward, wish.backward); }
  };
  Block block_of(const Item& x) const {
    const auto b = static_cast<std::size_t>(x.block);
    if (is_current(x)) return {base_[b], mine_};
    const std::size_t n = memory_.index(x.micro_batch, x.block);
    if (!memory_.decided_[n]) return {base_[b], wish_[b]};
    return {memory_.footprints_[n], memory_.footprints_[n]};
  }

  const StageMemory& memory_;
  const Item& current_;
  const std::vector<Footprint>&base_, &wish_;
  const Footprint& mine_;
  Bytes level_, parts_;
};

double StageMemory::level_share(const Footprint& mine) const {
  ensure(!finished() && current().kind == Kind::forward, "a share is asked for where no forward pass is next");
  Wished wished(*this, setup_.least, all_, mine);
  double share = 1;
  for (std::size_t i = at_; i < items_.size(); ++i) {
    const auto [left, all] = wished.pass(i);
    if (all.value > 0) share = std::min(share, static_cast<double>(left.value) / static_cast<double>(all.value));
    if (items_[i].kind == Kind::reload && wished.is_current(items_[i])) break;  // what it holds comes back from here on
  }
  return std::max(0.0, share);
}

bool StageMemory::next_unit_has_room() const {
  auto task =
      static_cast<std::size_t>(std::upper_bound(first_item_.begin(), first_item_.end(), at_) - first_item_.begin());
  while (task < order_.size() && !order_[task].beside_next) ++task;
  if (task == order_.size()) return true;
  const auto mine = static_cast<std::size_t>(current().block);
  Wished wished(*this, least_whole_, least_whole_, least_whole_[mine]);
  const std::size_t end = task + 2 < order_.size() ? first_item_[task + 2] : items_.size();
  for (std::size_t i = at_; i < end; ++i)
    if (wished.pass(i).left < Bytes(0) && i >= first_item_[task] && items_[i].beside_next) return false;
  return true;
}

int StageMemory::forwards_before_backward() const {
  const auto task =
      static_cast<std::size_t>(std::upper_bound(first_item_.begin(), first_item_.end(), at_) - first_item_.begin() - 1);
  int count = 0;
  for (std::size_t t = task; t < order_.size() && order_[t].kind == Task::Kind::forward; ++t) ++count;
  return count;
}

Bytes StageMemory::forecast() const {
  Bytes level = setup_.fixed, peak = level;
  for (std::size_t i = 0; i < items_.size(); ++i) peak = std::max(peak, run(i, level));
  return peak;
}

}  // namespace spillway
