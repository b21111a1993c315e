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
  for (std::size_t i = 0; i < footprints_.size(); ++i) footprints_[i] = setup_.least[i % setup_.blocks.size()];
}

std::span<const Task> StageMemory::unit() const {
  const auto task = std::lower_bound(first_item_.begin(), first_item_.end(), at_);
  if (task == first_item_.end() || *task != at_) return {};
  const auto t = static_cast<std::size_t>(task - first_item_.begin());
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
