#include "plan/schedule/interleave.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "plan/schedule/window_bounds.hpp"

namespace spillway {
namespace {

constexpr double rounding = 1e-12;  ///< relative: makespans that differ by less are equal
constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

}  // namespace

/// States (i, j): i forward and j backward segments issued, in row order; the copies issued are part of their labels.
class Interleaver::Search {
 public:
  Interleaving operator()(const DualBatch& batch, Copies copies);
  std::size_t partial_orders() const { return labels_.size(); }

 private:
  struct Label : PartialOrder {
    std::uint32_t parent = none;  ///< label before the last segment
    ChainId last = ChainId::forward;
  };
  struct Front {
    std::uint32_t begin = 0, end = 0;
  };

  void improve(Copies copies);
  Label root(Copies copies) const;
  void extend(std::uint32_t parent, ChainId chain, Copies copies);
  void run(Label& label, ChainId chain) const;
  void issue_copies(Label& label, std::size_t offloads, std::size_t reloads) const;
  void add(const Label& label);
  bool beats(const Label& a, const Label& b) const;
  void accept(IssueOrder order);
  IssueOrder order_of(const Label& last, Copies copies) const;
  const std::vector<Segment>& chain_of(std::size_t c) const { return batch_->chains[c]; }
  std::size_t offload_count() const { return batch_->of(ChainId::offload).size(); }
  std::size_t reload_count() const { return batch_->of(ChainId::reload).size(); }

  const DualBatch* batch_ = nullptr;
  WindowBounds bounds_;
  std::vector<Label> labels_;
  std::vector<Front> fronts_;  ///< [i][j]
  WindowPlace place_{};        ///< of the front under construction
  WindowRest rest_{};          ///< from there on
  std::uint32_t begin_ = 0;    ///< of the front under construction
  bool narrow_ = false;        ///< keeps one partial order of a state
  Seconds narrow_least_;       ///< its bound
  Interleaving best_;
  Seconds limit_;  ///< what a better order has to stay below
};

void Interleaver::Search::issue_copies(Label& l, std::size_t offloads, std::size_t reloads) const {
  if (batch_->interference > 1)
    l.compute.transfer(bounds_.offload_seconds(l.offloads, offloads) + bounds_.reload_seconds(l.reloads, reloads));
  l.offloads = offloads;
  l.reloads = reloads;
}

/// The next segment of `chain`, with which the order arrives at place_.
void Interleaver::Search::run(Label& l, ChainId chain) const {
  const auto c = static_cast<std::size_t>(chain);
  const Segment& s = chain_of(c)[place_[c] - 1];
  if (s.lane == Lane::compute) {
    l.compute.compute(l.ends[c], s.seconds, batch_->interference);
    l.ends[c] = l.compute.end;
  } else {
    l.network = l.ends[c] = std::max(l.network, l.ends[c]) + s.seconds;
    if (batch_->interference > 1) l.compute.transfer(s.seconds);
  }
  if (chain == ChainId::forward) {
    const std::size_t before = bounds_.offloads_ready(place_[0] - 1), now = bounds_.offloads_ready(place_[0]);
    if (now > before) l.copy_out = std::max(l.copy_out, l.ends[0]) + bounds_.offload_seconds(before, now);
  }
  l.last = chain;
}

/// `a` can do all that `b` can, no later: it issues now what only `b` has issued, and never again what only it has.
bool Interleaver::Search::beats(const Label& a, const Label& b) const {
  if (a.compute.end > b.compute.end || a.network > b.network || a.ends[0] > b.ends[0] || a.ends[1] > b.ends[1] ||
      a.copy_out > b.copy_out)
    return false;
  if (batch_->interference == 1) return true;
  Seconds beside = a.compute.beside;
  if (a.offloads < b.offloads) beside += bounds_.offload_seconds(a.offloads, b.offloads);
  if (a.reloads < b.reloads) beside += bounds_.reload_seconds(a.reloads, b.reloads);
  return beside <= b.compute.beside;
}

void Interleaver::Search::add(const Label& label) {
  const Seconds least = bounds_.least_makespan(rest_, label);
  if (least >= limit_) return;
  if (narrow_) {
    if (begin_ < labels_.size() && least >= narrow_least_) return;
    labels_.resize(begin_);
    narrow_least_ = least;
  }
  for (auto n = begin_; n < labels_.size(); ++n)
    if (beats(labels_[n], label)) return;
  const auto beaten = [&](const Label& other) { return beats(label, other); };
  labels_.erase(std::remove_if(labels_.begin() + begin_, labels_.end(), beaten), labels_.end());
  labels_.push_back(label);
}

void Interleaver::Search::extend(std::uint32_t parent, ChainId chain, Copies copies) {
  const auto c = static_cast<std::size_t>(chain);
  const Label before = labels_[parent];
  const auto with = [&](std::size_t offloads, std::size_t reloads) {
    Label next = before;
    next.parent = parent;
    issue_copies(next, offloads, reloads);
    const Seconds beside = next.compute.beside;
    run(next, chain);
    if (copies == Copies::early) issue_copies(next, bounds_.offloads_ready(place_[0]), reloads);
    // A chain's end counts only beyond the lane that it needs next, and not at all once it is done.
    for (std::size_t x = 0; x < 2; ++x) {
      const auto& segments = chain_of(x);
      next.ends[x] = place_[x] == segments.size()                ? Seconds(0)
                     : segments[place_[x]].lane == Lane::compute ? std::max(next.ends[x], next.compute.end)
                                                                 : std::max(next.ends[x], next.network);
    }
    WindowBounds::raise_lanes(rest_, next);
    add(next);
    return beside;
  };
  const Segment& s = chain_of(c)[place_[c] - 1];
  if (copies == Copies::early || s.lane != Lane::compute) {
    with(before.offloads, before.reloads);
    return;
  }
  // Copies slow computation alone, so they may wait for the next one; what this one does not meet may wait as well.
  const Seconds slow_throughout = std::max(before.compute.end, before.ends[c]) + s.seconds * batch_->interference;
  const std::size_t forward = place_[0] - (chain == ChainId::forward ? 1 : 0);
  for (std::size_t o = before.offloads; o <= bounds_.offloads_ready(forward); ++o)
    for (std::size_t r = before.reloads; r <= reload_count(); ++r)
      if (with(o, r) >= slow_throughout) break;
}

Interleaver::Search::Label Interleaver::Search::root(Copies copies) const {
  Label root;
  const std::size_t ready = bounds_.offloads_ready(0);
  root.copy_out = bounds_.offload_seconds(0, ready);
  if (copies == Copies::early) issue_copies(root, ready, reload_count());
  return root;
}

void Interleaver::Search::improve(Copies copies) {
  const std::size_t rows = chain_of(0).size() + 1, columns = chain_of(1).size() + 1;
  labels_.clear();
  fronts_.assign(rows * columns, {});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      begin_ = static_cast<std::uint32_t>(labels_.size());
      const Front above = i > 0 ? fronts_[(i - 1) * columns + j] : Front{};
      const Front left = j > 0 ? fronts_[i * columns + j - 1] : Front{};
      Front& front = fronts_[i * columns + j];
      front = {begin_, begin_};
      if (i + j > 0 && above.begin == above.end && left.begin == left.end) continue;
      place_ = {i, j};
      rest_ = bounds_.rest(place_);
      const auto extend_all = [&](const Front& from, ChainId chain) {
        for (auto n = from.begin; n < from.end; ++n) extend(n, chain, copies);
      };
      if (i + j == 0) add(root(copies));
      extend_all(above, ChainId::forward);
      extend_all(left, ChainId::backward);
      front.end = static_cast<std::uint32_t>(labels_.size());
    }
  const auto shorter = [&](const Label& a, const Label& b) {
    return bounds_.least_makespan(rest_, a) < bounds_.least_makespan(rest_, b);
  };
  if (begin_ < labels_.size())
    accept(order_of(*std::min_element(labels_.begin() + begin_, labels_.end(), shorter), copies));
}

void Interleaver::Search::accept(IssueOrder order) {
  best_.order = std::move(order);
  best_.makespan = spillway::makespan(*batch_, best_.order);
  limit_ = best_.makespan * (1 - rounding);
}

IssueOrder Interleaver::Search::order_of(const Label& last, Copies copies) const {
  IssueOrder reversed;
  const auto copies_since = [&](const PartialOrder& before, const PartialOrder& now) {
    reversed.insert(reversed.end(), now.offloads - before.offloads, ChainId::offload);
    reversed.insert(reversed.end(), now.reloads - before.reloads, ChainId::reload);
  };
  PartialOrder all;
  all.offloads = offload_count();
  all.reloads = reload_count();
  copies_since(last, all);
  const Label* l = &last;
  for (; l->parent != none; l = &labels_[l->parent]) {
    if (copies == Copies::anywhere) reversed.push_back(l->last);
    copies_since(labels_[l->parent], *l);
    if (copies == Copies::early) reversed.push_back(l->last);
  }
  copies_since({}, *l);
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

Interleaving Interleaver::Search::operator()(const DualBatch& batch, Copies copies) {
  validate(batch);
  batch_ = &batch;
  bounds_.prepare(batch);
  accept(plain_order(batch));
  best_.plain_makespan = best_.makespan;
  // A search that keeps the most promising partial order of a state alone finds an order against which nearly all others
  // are dropped early.
  narrow_ = true;
  improve(Copies::early);
  narrow_ = false;
  improve(Copies::early);
  if (copies == Copies::anywhere && batch.interference > 1) improve(copies);
  return best_;
}

Interleaver::Interleaver() : search_(std::make_unique<Search>()) {}
Interleaver::Interleaver(Interleaver&&) noexcept = default;
Interleaver& Interleaver::operator=(Interleaver&&) noexcept = default;
Interleaver::~Interleaver() = default;

Interleaving Interleaver::operator()(const DualBatch& batch, Copies copies) { return (*search_)(batch, copies); }
std::size_t Interleaver::partial_orders() const { return search_->partial_orders(); }

Interleaving interleave(const DualBatch& batch, Copies copies) { return Interleaver()(batch, copies); }

}  // namespace spillway
