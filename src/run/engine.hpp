#pragma once
// Everything that a restart tears down and builds again: communicators, arena, weights, activations.
#include "device/activation_store.hpp"
#include "device/communicators.hpp"
#include "device/ops/rotary.hpp"
#include "run/case.hpp"
#include "run/parameter_store.hpp"

namespace spillway {

/// Stage description of a case, for the plan.
StageSetup stage_setup(const Case& c);

struct Engine {
  /// Collective over the world.
  Engine(const Case& c, std::span<const StageBlock> blocks, device::ArenaOptions memory)
      : grid(c.grid),
        communicators(grid),
        arena(memory),
        parameters(arena, blocks, grid),
        activations(arena, static_cast<int>(c.training.micro_batches), static_cast<int>(blocks.size())) {
    parameters.initialize(c.training.seed, communicators.here);
  }

  Grid grid;
  device::Communicators communicators;
  device::Arena arena;
  ParameterStore parameters;
  device::ActivationStore activations;
  device::ops::RotaryTable rotary;
};

}  // namespace spillway
