// paged (Megatron-LM's paged stashing): activations of the experts go to a pool of fixed size on the device and to the host
// tier when it is full; everything else is kept. No recompute, no planning: what to do with a tensor is decided when the
// gate has told its size, by what micro-batches in flight have put into the pool.
//
// A page is a whole tensor here (published: 64 rows), so a tensor is never divided between pool and host. The pool is a
// limit, not a reservation: what it does not hold is free for others. Nothing bounds what is not in the pool, so this
// policy can run out of memory, as can the published one, which then repeats the step without stashing.
#include <algorithm>
#include <array>

#include "plan/policy/static_plan.hpp"

namespace spillway {
namespace {

constexpr std::array<Tensor, 3> stashed = {Tensor::fc1_input, Tensor::fc1_output, Tensor::fc2_input};

class Paged final : public Policy {
 public:
  explicit Paged(const PolicyOptions& options) : options_(options) {}

  bool plans_for_load() const override { return true; }
  void prepare(const StageFacts& facts) override {
    load_ = facts.load;
    blocks_ = facts.blocks.size();
    chunks_.clear();
    for (int chunk = 0; chunk <= facts.blocks.back().chunk; ++chunk)
      chunks_.push_back(blocks_of_chunk(facts.blocks, chunk));
    order_.assign(facts.order.begin(), facts.order.end());
    in_pool_.assign(order_.size() * blocks_, Bytes(0));
    pool_ = options_.paged_pool;
    if (pool_.value > 0) return;
    Mitigations spilled = Mitigations::keep_all();
    for (const Tensor t : stashed) spilled.set(t, Treatment::offload);
    pool_ = facts.books.cap() - static_peak(facts, std::vector<Mitigations>(blocks_, spilled), load_).device;
  }

  Mitigations decide(const Situation& s) override {
    Mitigations m = Mitigations::keep_all();
    if (s.block.kind != BlockKind::moe || s.machine.shared_memory) return m;
    // Before the gate this is a forecast; it takes nothing that cannot be decided again.
    const ExpertRows rows =
        s.table != nullptr ? s.received[static_cast<std::size_t>(s.member)] : rows_at(s.block.context, load_);
    Bytes room = pool_ - in_flight(s.micro_batch, s.index), host = s.budget.host, &mine = held(s.micro_batch, s.index);
    mine = Bytes(0);
    for (const Tensor t : stashed) {
      const Bytes size = round_up(bytes(t, s.block.context, rows), s.alignment);
      if (size > room && size <= host) {
        m.set(t, Treatment::offload);
        host -= size;
      } else {
        room -= size;
        mine += size;
      }
    }
    return m;
  }

 private:
  Bytes& held(int micro_batch, int block) {
    return in_pool_[static_cast<std::size_t>(micro_batch) * blocks_ + static_cast<std::size_t>(block)];
  }

  /// What micro-batches hold in the pool when this one's block goes forward.
  Bytes in_flight(int micro_batch, int block) {
    Bytes sum;
    for (const Task& task : order_) {
      const ChunkBlocks own = chunks_[static_cast<std::size_t>(task.chunk)];
      const bool here = task.micro_batch == micro_batch && own.first <= block && block <= own.last;  // its forward pass
      for (int b = own.first; b <= (here ? block - 1 : own.last); ++b)
        sum = task.kind == Task::Kind::forward ? sum + held(task.micro_batch, b) : sum - held(task.micro_batch, b);
      if (here) break;
    }
    return sum;
  }

  PolicyOptions options_;
  double load_ = 1;
  std::size_t blocks_ = 0;
  std::vector<ChunkBlocks> chunks_;
  std::vector<Task> order_;
  Bytes pool_;
  std::vector<Bytes> in_pool_;  // [micro-batch, block]
};

}  // namespace

std::unique_ptr<Policy> make_paged(const PolicyOptions& options) { return std::make_unique<Paged>(options); }

}  // namespace spillway
