// Published config.json files (their shape keys) and what is not understood in them.
#include "app/hugging_face.hpp"

#include "support.hpp"

namespace spillway::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Qwen3-30B-A3B.
const char* const qwen3 = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
  "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
  "mlp_only_layers": [], "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rope_scaling": null,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false,
  "vocab_size": 151936})";

/// DeepSeek-V3.
const char* const deepseek = R"({
  "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
  "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
  "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"quant_method": "fp8"}, "topk_group": 4, "torch_dtype": "bfloat16", "v_head_dim": 128,
  "vocab_size": 129280})";

/// Mixtral-8x7B: its intermediate_size is the experts'.
const char* const mixtral = R"({
  "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_experts_per_tok": 2,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
  "torch_dtype": "bfloat16", "vocab_size": 32000})";

/// A folder with a config.json beside a case of another model.
class HuggingFace : public testing::Test {
 protected:
  HuggingFaceModel read(const std::string& json) {
    inputs_.write("config.json", json);
    return read_hugging_face(file());
  }
  std::string refusal(const std::string& json) {
    return input_error_of([&] { read(json); });
  }
  ModelShape shape(const std::string& json) { return inputs_.read(read(json).settings).model; }
  std::filesystem::path file() const { return inputs_.root() / "config.json"; }

  InputTree inputs_;
};

/// `json` with one piece of text replaced.
std::string changed(std::string json, const std::string& from, const std::string& to) {
  json.replace(json.find(from), from.size(), to);
  return json;
}

TEST_F(HuggingFace, Qwen3ComesOutAsPublished) {
  const ModelShape s = shape(qwen3);
  EXPECT_EQ(s.num_experts, 128);
  EXPECT_EQ(s.num_experts_per_tok, 8);
  EXPECT_EQ(s.head_dim, 128);
  EXPECT_EQ(s.num_key_value_heads, 4);
  EXPECT_EQ(s.first_k_dense_replace, 0);
  EXPECT_EQ(s.bytes_per_element, 2);
  EXPECT_NEAR(static_cast<double>(count_parameters(s).total()), 30.5e9, 0.05e9);  // 30.5 B
  EXPECT_NEAR(static_cast<double>(count_active_parameters(s)), 3.3e9, 0.06e9);    // 3.3 B
  EXPECT_THAT(read(qwen3).warnings, IsEmpty());
}

TEST_F(HuggingFace, DeepSeekHasDenseLayersASharedExpertAndWarnings) {
  const ModelShape s = shape(deepseek);
  EXPECT_EQ(s.num_experts, 256);
  EXPECT_EQ(s.first_k_dense_replace, 3);
  EXPECT_EQ(s.intermediate_size, 18432);
  EXPECT_EQ(s.shared_expert_intermediate_size, 2048);  // one of 2048
  EXPECT_EQ(s.head_dim, 56);                           // 7168 / 128
  EXPECT_THAT(read(deepseek).warnings,
              ElementsAre(AllOf(HasSubstr("kv_lora_rank = 512"), HasSubstr("latent attention")),
                          HasSubstr("num_nextn_predict_layers = 1"), HasSubstr("quantization_config")));
}

TEST_F(HuggingFace, MixtralsIntermediateSizeIsTheExperts) {
  const ModelShape s = shape(mixtral);
  EXPECT_EQ(s.num_experts, 8);
  EXPECT_EQ(s.moe_intermediate_size, 14336);
  EXPECT_EQ(s.intermediate_size, 0);
  EXPECT_EQ(s.head_dim, 128);
  EXPECT_NEAR(static_cast<double>(count_parameters(s).total()), 46.7e9, 0.05e9);
}

TEST_F(HuggingFace, WhatIsLeftOutHasItsUsualDefault) {
  const ModelShape s = shape(changed(mixtral, R"("num_key_value_heads": 8, )", ""));
  EXPECT_EQ(s.num_key_value_heads, 32);
  EXPECT_EQ(
      shape(changed(deepseek, R"("n_shared_experts": 1)", R"("n_shared_experts": 2)")).shared_expert_intermediate_size,
      4096);
  EXPECT_EQ(shape(changed(deepseek, R"("n_shared_experts": 1)", R"("n_shared_experts": null)"))
                .shared_expert_intermediate_size,
            0);
}

TEST_F(HuggingFace, NothingOfTheCasesOwnModelShinesThroughButItsAccounting) {
  inputs_.write("models/small.toml",
                "first_k_dense_replace = 1\nintermediate_size = 7\nshared_expert_intermediate_size = 9\nhead = false\n"
                "inventory = \"default\"\n");
  const ModelShape s = shape(mixtral);
  EXPECT_EQ(s.first_k_dense_replace, 0);
  EXPECT_EQ(s.shared_expert_intermediate_size, 0);
  EXPECT_FALSE(s.head);
  EXPECT_EQ(s.inventory, Inventory::standard);
}

TEST_F(HuggingFace, TheCommandLineStillWins) {
  std::vector<std::string> settings = read(mixtral).settings;
  settings.emplace_back("model.num_hidden_layers=2");
  EXPECT_EQ(inputs_.read(settings).model.num_hidden_layers, 2);
}

TEST_F(HuggingFace, AMissingKeyIsOneClearError) {
  for (const std::string key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                "num_experts_per_tok", "moe_intermediate_size"}) {
    const std::string json = changed(deepseek, "\"" + key + "\"", "\"no_" + key + "\"");
    EXPECT_THAT(refusal(json), AllOf(HasSubstr("config.json"), HasSubstr("the key " + key + " is missing"))) << key;
  }
  EXPECT_THAT(refusal(changed(mixtral, "num_local_experts", "experts")),
              HasSubstr("the key num_experts or n_routed_experts or num_local_experts is missing"));
  EXPECT_THAT(refusal(changed(deepseek, "intermediate_size", "no")), HasSubstr("the key intermediate_size is missing"));
}

TEST_F(HuggingFace, ValuesThatNoModelHasAreRefusedWithFileAndKey) {
  EXPECT_THAT(refusal(changed(qwen3, "2048", "-5")), AllOf(HasSubstr("config.json: model.hidden_size = -5")));
  EXPECT_THAT(refusal(changed(qwen3, "2048", "2048.5")), HasSubstr("hidden_size = 2048.5: expected a whole number"));
  EXPECT_THAT(refusal(changed(qwen3, "2048", "\"wide\"")), HasSubstr("hidden_size = \"wide\""));
  EXPECT_THAT(refusal(changed(qwen3, "2048", "18446744073709551615")), HasSubstr("expected a whole number"));
  EXPECT_THAT(refusal(changed(mixtral, "4096", "4097")), HasSubstr("4097 is no multiple of num_attention_heads = 32"));
}

TEST_F(HuggingFace, AFileThatIsNoConfigIsRefused) {
  EXPECT_THAT(refusal("hidden_size = 5"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(input_error_of([&] { read_hugging_face(inputs_.root() / "absent.json"); }), HasSubstr("absent.json"));
  EXPECT_THAT(input_error_of([&] { read_hugging_face(inputs_.root()); }), HasSubstr("not a file"));
}

TEST_F(HuggingFace, FeaturesOfTheShapeThatAreNotModelledAreNamed) {
  const auto warned = [&](const std::string& more) { return read(changed(mixtral, "{", "{" + more + ",")).warnings; };
  EXPECT_THAT(warned(R"("sliding_window": 4096)"), ElementsAre(HasSubstr("sliding_window = 4096")));
  EXPECT_THAT(warned(R"("sliding_window": 4096, "use_sliding_window": false)"), IsEmpty());
  EXPECT_THAT(warned(R"("layer_types": ["full_attention", "sliding_attention"])"),
              ElementsAre(HasSubstr("layer_types")));
  EXPECT_THAT(warned(R"("layer_types": ["full_attention", "full_attention"])"), IsEmpty());
  EXPECT_THAT(warned(R"("decoder_sparse_step": 2)"), ElementsAre(HasSubstr("decoder_sparse_step = 2")));
  EXPECT_THAT(warned(R"("mlp_only_layers": [0, 4])"), ElementsAre(HasSubstr("mlp_only_layers = [0,4]")));
  EXPECT_THAT(warned(R"("linear_num_value_heads": 32)"), ElementsAre("not read: linear_num_value_heads"));
}

TEST_F(HuggingFace, TheTextModelOfSeveralModalitiesIsRead) {
  const std::string json = std::string(R"({"vision_config": {"hidden_size": 1}, "text_config": )") + qwen3 + "}";
  EXPECT_EQ(shape(json).hidden_size, 2048);
  EXPECT_THAT(read(json).warnings, ElementsAre(HasSubstr("only text_config")));
}

}  // namespace
}  // namespace spillway::app
