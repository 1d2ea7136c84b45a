"""What the adapters rely on, as it is in vLLM 0.32.0: parameters and fields, and attributes that constructors set.

The plugin compares all of it with the installed engine before it replaces anything.
"""

from __future__ import annotations

VERSIONS = ("0.32.0",)
V1, V2 = "vllm.v1.sample.rejection_sampler", "vllm.v1.worker.gpu"
FORWARD = f"{V1}:RejectionSampler.forward"
BUILD = "vllm.v1.worker.gpu_model_runner:build_logitsprocs"
PROCESSORS = "vllm.v1.sample.logits_processor.builtin"
VERIFY = f"{V2}.spec_decode.rejection_sampler:RejectionSampler._verify"
CONTEXT = f"{V2}.sample.logits_processor.interface"
VALIDATE = "vllm.sampling_params:SamplingParams._validate_spec_decode"
APPLY = ("self", "logits", "ctx")

VERIFIER = {
    VALIDATE: ("self", "speculative_config"),
    FORWARD: ("self", "metadata", "draft_probs", "logits", "sampling_metadata"),
    f"{V1}:RejectionSampler.apply_logits_processors": (*("self", "logits", "sampling_metadata", "metadata"),),
    f"{V1}:RejectionSampler._get_logprobs_tensors": (
        *("self", "max_num_logprobs", "metadata", "logits", "target_logits", "bonus_logits", "sampled_token_ids"),
    ),
    "vllm.v1.sample.sampler:Sampler.apply_logits_processors": (
        *("self", "logits", "sampling_metadata", "predict_bonus_token"),
    ),
    "vllm.v1.spec_decode.metadata:SpecDecodeMetadata": (
        *("draft_token_ids", "num_draft_tokens", "cu_num_draft_tokens", "cu_num_sampled_tokens"),
        *("target_logits_indices", "bonus_logits_indices", "logits_indices"),
    ),
    "vllm.v1.sample.metadata:SamplingMetadata": (
        *("temperature", "all_greedy", "all_random", "top_p", "top_k", "generators", "max_num_logprobs"),
        *("no_penalties", "prompt_token_ids", "frequency_penalties", "presence_penalties", "repetition_penalties"),
        *("output_token_ids", "allowed_token_ids_mask", "bad_words_token_ids", "logitsprocs", "logprob_token_ids"),
        *("spec_token_ids", "thinking_budget_state_holder"),
    ),
    "vllm.v1.outputs:SamplerOutput": ("sampled_token_ids", "logprobs_tensors"),
    BUILD: ("vllm_config", "device", "is_pin_memory", "is_pooling_model", "custom_logitsprocs"),
    f"{PROCESSORS}:MinPLogitsProcessor": ("vllm_config", "device", "is_pin_memory"),
    f"{PROCESSORS}:LogitBiasLogitsProcessor": ("_", "device", "is_pin_memory"),
    VERIFY: (
        *("self", "logits", "draft_logits", "draft_sampled", "pos", "cu_num_logits", "idx_mapping", "idx_mapping_np"),
        *("expanded_idx_mapping", "expanded_local_pos", "seq_lens_upper_bound_np", "verify_draft_sampled"),
    ),
    f"{CONTEXT}:LogitsContext": (
        *("expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "expanded_local_pos", "input_ids", "pos"),
        "seq_lens_upper_bound_np",
    ),
    f"{CONTEXT}:LogitsProcessor.apply": APPLY,
    f"{V2}.sample.thinking_budget:ThinkingBudgetState.apply": APPLY,
}
VERIFIER_MENTIONS = {
    f"{V1}:RejectionSampler.__init__": (
        *("self.sampler = sampler", "self.is_processed_logprobs_mode", "self.synthetic_mode"),
    ),
    f"{PROCESSORS}:MinPLogitsProcessor.__init__": ("self.min_p_count", "self.min_p:"),
    f"{PROCESSORS}:LogitBiasLogitsProcessor.__init__": ("self.biases",),
    f"{PROCESSORS}:MinTokensLogitsProcessor.__init__": ("self.min_toks",),
    f"{V2}.spec_decode.rejection_sampler:RejectionSampler.__init__": (
        *(
            "self.sampler = ",
            "self.watermark_key = ",
            "self.synthetic_conditional_rates",
            "self.use_block_verification",
        ),
    ),
    f"{V2}.sample.sampler:Sampler.__init__": (
        *(
            "self.sampling_states = ",
            "self.logits_processors",
            "self.thinking_budget_state = ",
            "self.logprobs_mode = ",
        ),
        "self.return_sampling_mask = ",
    ),
    f"{V2}.sample.states:SamplingStates.__init__": (
        *("self.temperature = ", "self.top_k = ", "self.top_p = ", "self.min_p = ", "self.seeds = ", "self.vocab_size"),
    ),
    f"{V2}.sample.logit_bias:LogitBiasState.__init__": ("self.use_logit_bias = ",),
    f"{V2}.sample.penalties:PenaltiesState.__init__": ("self.use_penalty = ",),
    f"{V2}.sample.bad_words:BadWordsState.__init__": ("self.num_bad_words = ",),
    f"{V2}.sample.thinking_budget:ThinkingBudgetState.__init__": ("self.use_thinking_budget = ",),
}
