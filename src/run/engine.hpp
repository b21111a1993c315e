#pragma once
// Everything that a restart tears down and builds again: communicators, arena, weights, activations.
#include "device/activation_store.hpp"
#include "device/communicators.hpp"
#include "device/network.hpp"
#include "device/ops/rotary.hpp"
#include "run/case.hpp"
#include "run/parameter_store.hpp"

namespace spillway {

/// Stage description of a case, for the plan.
StageSetup stage_setup(const Case& c);

/// The host tier of a rank: an arena of its own.
inline device::ArenaOptions host_tier(const Case& c, device::ArenaOptions device) {
  device.cap = c.memory.host_cap;
  return device;
}

struct Engine {
  /// Collective over the world.
  Engine(const Case& c, std::span<const StageBlock> blocks, device::ArenaOptions memory, device::Clock& clock,
         bool network_thread = false)
      : grid(c.grid),
        communicators(grid),
        arena(memory),
        host_arena(host_tier(c, memory)),
        network(clock, network_thread),
        copies(clock),
        parameters(arena, blocks, grid, rank_elements(blocks, grid, c.overlap_gradients)),
        activations({arena, c.machine.shared_memory ? arena : host_arena, copies, clock},
                    static_cast<int>(c.training.micro_batches), static_cast<int>(blocks.size())) {
    parameters.initialize(c.training.seed, communicators.here);
  }

  Grid grid;
  device::Communicators communicators;
  device::Arena arena;
  device::Arena host_arena;  ///< the host tier; unused where host and device share memory
  device::Network network;
  device::CopyEngine copies;
  ParameterStore parameters;
  device::ActivationStore activations;
  device::ops::RotaryTable rotary;
};

}  // namespace spillway
