#pragma once
// A model shape from the config.json that Hugging Face publishes with a model.
#include <filesystem>
#include <string>
#include <vector>

namespace spillway::app {

/// What a config.json says, in the words of the option table.
struct HuggingFaceModel {
  /// "model.hidden_size=4096" and so on: every key of the shape, so that nothing of another model shines through.
  std::vector<std::string> settings;
  std::vector<std::string> warnings;  ///< features of the shape that are not modelled
};

/// Reads hidden_size, num_hidden_layers, num_attention_heads, vocab_size, num_experts_per_tok, the number of experts
/// (num_experts, n_routed_experts or num_local_experts), their hidden size (moe_intermediate_size; intermediate_size,
/// as in Mixtral, where no layer is dense), and where present num_key_value_heads (otherwise num_attention_heads),
/// head_dim (hidden_size / num_attention_heads), first_k_dense_replace with intermediate_size,
/// shared_expert_intermediate_size or n_shared_experts x moe_intermediate_size, torch_dtype. A model of several
/// modalities is read from its text_config.
/// Throws InputError, naming file and key, for a file that is not JSON, a missing key, or a value that its option does
/// not take.
HuggingFaceModel read_hugging_face(const std::filesystem::path& config_json);

}  // namespace spillway::app
