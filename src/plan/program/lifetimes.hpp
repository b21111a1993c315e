#pragma once
// Plans the memory of a pass: a tensor lives from the step that writes it to the last that uses it, or beyond the pass.
#include <vector>

#include "plan/program/backward_order.hpp"
#include "plan/program/block_program.hpp"

namespace spillway {

/// A copy or a cast of one tensor as an instruction.
Instruction movement(Action action, Tensor subject);

class Lifetimes {
 public:
  /// What becomes of tensors after their last use; those in no set are released.
  struct Fate {
    TensorSet stay, offload, quantize;
  };
  /// `live` tensors are there before the first step; `quantized` ones return just before their first use.
  Lifetimes(const std::vector<Step>& steps, TensorSet live, TensorSet quantized = {});

  /// Plans the steps up to `end` (exclusive) that are not planned yet.
  void plan(std::size_t end, const Fate& fate);
  /// A new fate for the tensors that live although no step from `from` on uses them.
  void settle(std::size_t from, const Fate& fate);

  std::vector<Instruction> instructions() && { return std::move(list_); }

 private:
  struct Use {
    std::size_t first, last;
  };
  bool ends(std::size_t step, Tensor t) const;
  std::size_t& last_use(Tensor t, int life);
  void finish(Tensor t, const Fate& fate, Instruction& at, std::vector<Instruction>& after);

  const std::vector<Step>& steps_;
  TensorSet live_, quantized_;
  int lives_ = 0;
  std::vector<std::size_t> last_;  // [tensor][life + 1], index of the last step that touches it
  std::size_t next_ = 0;
  std::vector<Instruction> list_;
};

}  // namespace spillway
