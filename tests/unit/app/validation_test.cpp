// Everything that is refused before the first step. Reports1 to Reports4 are faults that users of neighbouring tools
// reported.
#include "support.hpp"

namespace spillway::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Change>
Case changed(const Change& change) {
  Case c = valid_case();
  change(c);
  return c;
}

template <class Change>
std::string refusal(const Change& change, int world = 0) {
  return input_error_of([&] { validate(changed(change), world); });
}

TEST(Validation, TheBaseCaseOfTheseTestsIsValid) {
  EXPECT_NO_THROW(validate(valid_case(), 1));
  EXPECT_NO_THROW(validate_real_run(valid_case(), {1, 1, 1}));
}

// 30 layers on 4 stages silently trained 28; 80 layers on 16 stages silently ran 64.
TEST(Reports1, LayersOverStagesAlwaysAddUp) {
  for (const auto& [layers, stages] : {std::pair{30, 4}, {80, 16}, {7, 2}, {5, 5}, {64, 1}, {61, 16}}) {
    const Case c = changed([&](Case& v) {
      v.model.num_hidden_layers = layers;
      v.grid.pipeline_parallel = stages;
    });
    EXPECT_NO_THROW(validate(c, 0));
    std::int64_t sum = 0;
    for (const std::int64_t n : layers_of_pieces(c)) sum += n;
    EXPECT_EQ(sum, layers);
    EXPECT_EQ(layers_of_pieces(c).size(), static_cast<std::size_t>(stages));
  }
}

TEST(Reports1, UnevenSplitGivesTheFirstStagesOneMore) {
  Case c = changed([](Case& v) {
    v.model.num_hidden_layers = 7;
    v.grid.pipeline_parallel = 2;
  });
  EXPECT_THAT(layers_of_pieces(c), ElementsAre(4, 3));
  c.model.num_hidden_layers = 30;
  c.grid.pipeline_parallel = 4;
  EXPECT_THAT(layers_of_pieces(c), ElementsAre(8, 8, 7, 7));
  c.layers_per_stage = {7, 7, 8, 8};
  EXPECT_NO_THROW(validate(c, 0));
  EXPECT_THAT(layers_of_pieces(c), ElementsAre(7, 7, 8, 8));
}

TEST(Reports1, StatedSplitThatDoesNotAddUpIsRefusedWithTheArithmetic) {
  const auto split = [](std::vector<std::int64_t> list) {
    return [list](Case& c) {
      c.model.num_hidden_layers = 30;
      c.grid.pipeline_parallel = 4;
      c.layers_per_stage = list;
    };
  };
  EXPECT_THAT(refusal(split({7, 7, 7, 7})),
              AllOf(HasSubstr("7 + 7 + 7 + 7 = 28 layers"), HasSubstr("num_hidden_layers = 30"),
                    HasSubstr("2 would be left out")));
  EXPECT_THAT(refusal(split({8, 8, 8, 8})), HasSubstr("2 would be invented"));
  EXPECT_THAT(refusal(split({15, 15})), HasSubstr("2 entries"));
  EXPECT_THAT(refusal(split({10, 10, 10, 0})), HasSubstr("every stage and chunk needs a layer"));
}

TEST(Reports1, MoreStagesThanLayersAreRefused) {
  EXPECT_THAT(refusal([](Case& c) { c.grid.pipeline_parallel = 6; }),
              AllOf(HasSubstr("num_hidden_layers = 4"), HasSubstr("2 stages without a layer"), HasSubstr("at most 4")));
}

// 256 experts on 3 expert ranks: bare assertion. 24 ranks orphaned 8 of 128 experts.
TEST(Reports2, ExpertsThatDoNotSpreadEvenlyNameTheNearestLegalLayouts) {
  EXPECT_THAT(refusal([](Case& c) {
                c.model.num_experts = 256;
                c.grid.data_parallel = c.grid.expert_parallel = 3;
              }),
              AllOf(HasSubstr("256 = 85 x 3 + 1"), HasSubstr("expert_parallel 1 on the 3 ranks"),
                    HasSubstr("expert_parallel 2 or 4 on stages"), HasSubstr("num_experts 255 or 258")));
  EXPECT_THAT(refusal([](Case& c) {
                c.model.num_experts = 128;
                c.grid.data_parallel = c.grid.expert_parallel = 24;
              }),
              AllOf(HasSubstr("8 experts would be left over"), HasSubstr("expert_parallel 8 on the 24 ranks"),
                    HasSubstr("expert_parallel 16 or 32 on stages"), HasSubstr("num_experts 120 or 144")));
  EXPECT_THAT(refusal([](Case& c) { c.grid.data_parallel = c.grid.expert_parallel = 16; }),  // 8 experts
              AllOf(HasSubstr("8 = 0 x 16 + 8"), HasSubstr("expert_parallel 8 on the 16 ranks"),
                    HasSubstr("num_experts 16 on")));
}

TEST(Reports2, ExpertGroupThatDoesNotTileTheStageNamesTheNearest) {
  EXPECT_THAT(refusal([](Case& c) {
                c.grid.data_parallel = 6;
                c.grid.expert_parallel = 4;
              }),
              AllOf(HasSubstr("expert_parallel = 4"), HasSubstr("6 ranks of a stage"), HasSubstr("3, 6")));
}

// "Expected 8 ranks, got 4", and nobody could see how 8 was computed.
TEST(Reports3, WrongRankCountPrintsTheProduct) {
  const auto grid = [](Case& c) { c.grid.pipeline_parallel = c.grid.data_parallel = 4; };
  EXPECT_THAT(refusal(grid, 4), AllOf(HasSubstr("16 ranks = pipeline_parallel 4 x data_parallel 4 x tensor_parallel 1"),
                                      HasSubstr("started 4")));
  EXPECT_NO_THROW(validate(changed(grid), 16));
  EXPECT_NO_THROW(validate(changed(grid), 0));
}

// A wrong size died after 13 minutes.
TEST(Reports4, ImpossibleSizesAreRefusedBeforeAnythingStarts) {
  EXPECT_THAT(refusal([](Case& c) { c.training.micro_batches = 0; }), HasSubstr("micro_batches = 0"));
  EXPECT_THAT(refusal([](Case& c) { c.training.iterations = 0; }), HasSubstr("iterations = 0"));
  EXPECT_THAT(refusal([](Case& c) { c.training.checkpoint_every = 0; }), HasSubstr("checkpoint_every = 0"));
  EXPECT_THAT(refusal([](Case& c) { c.training.adam_beta2 = 1; }), HasSubstr("adam_beta2 = 1"));
  EXPECT_THAT(refusal([](Case& c) { c.model.head_dim = 15; }), HasSubstr("head_dim = 15"));
  EXPECT_THAT(refusal([](Case& c) { c.model.num_experts_per_tok = 9; }), HasSubstr("num_experts_per_tok = 9"));
  EXPECT_THAT(refusal([](Case& c) { c.memory.alignment = Bytes(96); }), HasSubstr("memory.alignment = 96"));
  EXPECT_THAT(refusal([](Case& c) { c.provisioning.margin = 0.5; }), HasSubstr("provisioning.margin = 0.5"));
  EXPECT_THAT(refusal([](Case& c) { c.machine.peak_flops = 0; }), HasSubstr("machine.peak_flops = 0"));
  EXPECT_THAT(refusal([](Case& c) { c.routing.preset = "bursts"; }), HasSubstr("burst"));
}

TEST(Reports4, SizesWhoseProductsOverflowAreRefusedWithTheFactors) {
  EXPECT_THAT(refusal([](Case& c) {
                c.model.hidden_size = c.model.moe_intermediate_size = 1 << 20;
                c.model.num_experts = 1 << 14;
              }),
              AllOf(HasSubstr("parameters, more than 2^53"), HasSubstr("moe_intermediate_size = 1048576")));
  EXPECT_THAT(refusal([](Case& c) { c.training.sequence_length = c.training.iterations = std::int64_t{1} << 30; }),
              AllOf(HasSubstr("tokens, more than 2^53"), HasSubstr("micro_batches 8")));
  EXPECT_THAT(refusal([](Case& c) {
                c.training.sequence_length = std::int64_t{1} << 40;
                c.model.vocab_size = std::int64_t{1} << 30;
              }),
              HasSubstr("beyond 2^60 bytes"));
}

TEST(Reports4, NameThatCannotBeAFolderIsRefused) {
  for (const std::string name : {"", "../up", "a/b", ".hidden", "two words", "a=b"}) {
    EXPECT_THAT(refusal([&](Case& c) { c.name = name; }), HasSubstr("name = \"" + name + "\""));
  }
}

TEST(Policies, UnknownEmptyAndRepeatedOnesAreRefused) {
  const std::vector<std::string> known{"keep", "selective", "full"};
  const auto refused = [&](std::vector<std::string> policies, std::string fallback = "full") {
    ProvisioningOptions provisioning;
    provisioning.policies = std::move(policies);
    provisioning.fallback = std::move(fallback);
    return input_error_of([&] { validate_policies(provisioning, known); });
  };
  EXPECT_THAT(refused({"keep", "selectiv"}), AllOf(HasSubstr("no policy \"selectiv\"; nearest: selective"),
                                                   HasSubstr("known: keep, selective, full")));
  EXPECT_THAT(refused({}), HasSubstr("policies is empty"));
  EXPECT_THAT(refused({"keep", "full", "keep"}), HasSubstr("names \"keep\" twice"));
  EXPECT_THAT(refused({"keep"}, "fall"), AllOf(HasSubstr("provisioning.fallback"), HasSubstr("nearest: full")));
  EXPECT_THAT(refusal([](Case& c) { c.provisioning.policies = {"ful"}; }), HasSubstr("nearest: full"));
}

Case interleaved(std::int64_t layers, int stages, std::int64_t chunk) {
  return changed([=](Case& c) {
    c.model.num_hidden_layers = layers;
    c.grid.pipeline_parallel = stages;
    c.layers_per_virtual_stage = chunk;
  });
}

TEST(Interleaving, ChunksMustDivideTheLayersOfEveryStage) {
  EXPECT_NO_THROW(validate(interleaved(32, 8, 2), 0));
  EXPECT_EQ(chunks_of_stages(interleaved(32, 8, 2)), 2);
  EXPECT_EQ(chunks_of_stages(interleaved(32, 8, 4)), 1);
  EXPECT_EQ(chunks_of_stages(interleaved(32, 8, 0)), 1);
  const auto refused = [](const Case& c) { return input_error_of([&] { validate(c, 0); }); };
  EXPECT_THAT(refused(interleaved(48, 8, 4)),
              AllOf(HasSubstr("layers_per_virtual_stage = 4"), HasSubstr("6 = 1 x 4 + 2"), HasSubstr("3 or 6")));
  EXPECT_THAT(refused(interleaved(7, 2, 1)),
              AllOf(HasSubstr("7 layers on 2 stages are 3 each and 1 over"), HasSubstr("virtual_stages")));
  EXPECT_THAT(refused(interleaved(4, 2, -1)), HasSubstr("layers_per_virtual_stage = -1"));
}

TEST(Interleaving, VirtualStagesMayDifferByALayerOrBeStated) {
  const auto cut = [](std::int64_t layers, std::int64_t virtual_stages, std::vector<std::int64_t> list = {}) {
    return changed([&](Case& c) {
      c.model.num_hidden_layers = layers;
      c.grid.pipeline_parallel = 2;
      c.virtual_stages = virtual_stages;
      c.layers_per_stage = std::move(list);
    });
  };
  const auto refused = [](const Case& c) { return input_error_of([&] { validate(c, 0); }); };
  EXPECT_THAT(layers_of_pieces(cut(7, 3)), ElementsAre(2, 1, 1, 1, 1, 1));
  EXPECT_NO_THROW(validate(cut(7, 3), 0));
  EXPECT_NO_THROW(validate(cut(7, 2, {1, 3, 2, 1}), 0));
  EXPECT_THAT(refused(cut(7, 2, {4, 3})), AllOf(HasSubstr("2 entries"), HasSubstr("4 = pipeline_parallel 2 x")));
  EXPECT_THAT(refused(cut(7, 4)), AllOf(HasSubstr("7 layers"), HasSubstr("at most 3")));
  EXPECT_THAT(refused(cut(7, 0)), HasSubstr("virtual_stages = 0"));
  EXPECT_THAT(refused(cut(7, std::int64_t{1} << 62)), HasSubstr("at most 3"));
  Case both = cut(8, 2);
  both.layers_per_virtual_stage = 2;
  EXPECT_THAT(refused(both), HasSubstr("set one of them"));
}

TEST(Schedule, OrdersAreNamedAndGPipeTakesStagesInOnePiece) {
  const auto with = [](const char* schedule, std::int64_t virtual_stages) {
    return changed([&](Case& c) {
      c.model.num_hidden_layers = 4;
      c.grid.pipeline_parallel = 2;
      c.virtual_stages = virtual_stages;
      c.schedule = schedule;
    });
  };
  const auto refused = [](const Case& c) { return input_error_of([&] { validate(c, 0); }); };
  EXPECT_THAT(refused(with("1f2b", 1)),
              AllOf(HasSubstr("1f2b"), HasSubstr("1f1b, dual_batch, dual_batch_published, gpipe")));
  EXPECT_THAT(refused(with("gpipe", 2)), AllOf(HasSubstr("gpipe"), HasSubstr("2 virtual stages")));
  EXPECT_NO_THROW(validate(with("gpipe", 1), 0));
}

TEST(TensorParallel, DividesWhatItsRanksShare) {
  const auto refused = [](const auto& change) {
    return refusal([&](Case& c) {
      c.grid.tensor_parallel = 4;
      change(c);
    });
  };
  EXPECT_NO_THROW(validate(changed([](Case& c) { c.grid.tensor_parallel = 4; }), 4));
  EXPECT_THAT(refused([](Case& c) { c.model.num_key_value_heads = 2; }),
              AllOf(HasSubstr("tensor_parallel = 4"), HasSubstr("num_key_value_heads = 2"), HasSubstr("do: 2")));
  EXPECT_THAT(refused([](Case& c) {
                c.grid.tensor_parallel = 8;
                c.model.num_key_value_heads = 2;
              }),
              AllOf(HasSubstr("num_attention_heads = 4, num_key_value_heads = 2"), HasSubstr("do: 2")));
  EXPECT_THAT(refused([](Case& c) { c.model.num_attention_heads = c.model.num_key_value_heads = 6; }),
              HasSubstr("num_attention_heads = 6"));
  EXPECT_THAT(refused([](Case& c) { c.model.shared_expert_intermediate_size = 30; }), HasSubstr("shared_expert"));
  EXPECT_THAT(refused([](Case& c) { c.model.vocab_size = 255; }), HasSubstr("vocab_size = 255"));
  EXPECT_THAT(refused([](Case& c) { c.training.sequence_length = 63; }), HasSubstr("sequence_length = 63"));
}

TEST(Validation, WithoutTheWorkloadRoutingIsNotLookedAt) {
  const Case c = changed([](Case& v) { v.routing.reference_ranks = 3; });
  EXPECT_NO_THROW(validate_without_workload(c, 1));
  EXPECT_THAT(input_error_of([&] { validate(c, 1); }), HasSubstr("reference_ranks = 3"));
}

TEST(RealRun, ElementsOfTwoBytesAreRefused) {
  const Case c = changed([](Case& v) { v.model.bytes_per_element = 2; });
  EXPECT_THAT(input_error_of([&] { validate_real_run(c, {1, 1, 1}); }), HasSubstr("bytes_per_element = 2"));
}

TEST(RealRun, WallClockWithMoreRanksThanCoresIsRefusedUnlessAllowed) {
  Case c = changed([](Case& v) {
    v.clock = ClockKind::wall;
    v.grid.data_parallel = 4;
  });
  const LaunchFacts crowded{4, 4, 2};
  EXPECT_NO_THROW(validate_real_run(c, {4, 4, 4}));
  try {
    validate_real_run(c, crowded);
    ADD_FAILURE() << "4 ranks on 2 cores were accepted";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("4 ranks share the 2 cores"), HasSubstr("--allow-oversubscribed")));
    EXPECT_EQ(error.code(), ExitCode::environment);
  }
  c.allow_oversubscribed = true;
  EXPECT_NO_THROW(validate_real_run(c, crowded));
  c.allow_oversubscribed = false;
  c.clock = ClockKind::virtual_time;
  EXPECT_NO_THROW(validate_real_run(c, crowded));
}

}  // namespace
}  // namespace spillway::app
