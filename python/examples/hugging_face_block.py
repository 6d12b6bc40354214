"""Puts megamoe layers in the place of the experts of a Hugging Face model: Mixtral, Qwen3-MoE, gpt-oss, DeepSeek-V3.

    from hugging_face_block import replace_experts
    replace_experts(model, max_tokens=512)       # every MoE block of the model, then use it as before
    python hugging_face_block.py                 # a small block of each family, compared with its own output

The block's own router stays, so its choice of experts does; weights and x run in bfloat16. Forward only. For
transformers 5, whose experts are stacked tensors.
"""
import sys

import megamoe
import torch


class MegaMoeExperts(torch.nn.Module):
    """Called as the experts of a block are: (hidden_states [tokens, H], ids [tokens, K], weights [tokens, K]) -> [tokens, H]."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    @torch.no_grad()
    def forward(self, hidden_states, router_indices=None, routing_weights=None):
        results = []
        capacity = self.layer.config.max_tokens
        for first in range(0, hidden_states.shape[0], capacity):
            part = slice(first, first + capacity)
            y = self.layer(hidden_states[part].to(torch.bfloat16).contiguous(), router_indices[part].contiguous(),
                           routing_weights[part].float().contiguous())
            results.append(y.to(hidden_states.dtype))
        return torch.cat(results) if results else torch.zeros_like(hidden_states)


def layer_of(experts, top_k, max_tokens, group=None):
    """A megamoe.Layer with the weights of a block's experts."""
    gate_up, down = experts.gate_up_proj.detach(), experts.down_proj.detach()
    gpt_oss = hasattr(experts, "gate_up_proj_bias")
    options, activation, limit = {}, "swiglu", None
    if gpt_oss:  # [E, H, 2 I], gate and up alternating, and a clamp
        gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
        options = {"w1_bias": experts.gate_up_proj_bias, "w2_bias": experts.down_proj_bias, "interleaved": True}
        activation, limit = "swiglu_oai", float(experts.limit)
    w1, w2 = (w.to(device="cpu", dtype=torch.bfloat16).contiguous() for w in (gate_up, down))
    config = megamoe.LayerConfig(
        hidden=w2.shape[1], intermediate=w2.shape[2], experts=w1.shape[0], top_k=top_k, max_tokens=max_tokens,
        recipe="bf16_bf16", activation=activation, activation_limit=limit)
    return megamoe.Layer(config, megamoe.Weights(w1, w2, **options), group)


def replace_experts(model, max_tokens=512, group=None):
    """Replaces the experts of every MoE block of `model`; returns how many. The blocks' routers and shared experts stay."""
    replaced = 0
    for block in list(model.modules()):
        router = getattr(block, "gate", None) or getattr(block, "router", None)
        if not hasattr(getattr(block, "experts", None), "gate_up_proj") or not hasattr(router, "top_k"):
            continue
        block.experts = MegaMoeExperts(layer_of(block.experts, router.top_k, max_tokens, group))
        replaced += 1
    return replaced


def small_blocks():
    """(name, block) of every family, with random weights."""
    from transformers import DeepseekV3Config, GptOssConfig, MixtralConfig, Qwen3MoeConfig
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    sizes = {"hidden_size": 256, "intermediate_size": 192, "moe_intermediate_size": 192, "num_experts_per_tok": 2}
    yield "Mixtral", MixtralSparseMoeBlock(MixtralConfig(**sizes, num_local_experts=8))
    yield "Qwen3-MoE", Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**sizes, num_experts=8, norm_topk_prob=True))
    yield "gpt-oss", GptOssMLP(GptOssConfig(**sizes, num_local_experts=8))
    yield "DeepSeek-V3", DeepseekV3MoE(DeepseekV3Config(**sizes, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1))


def output_of(block, x):
    y = block(x)
    return y[0] if isinstance(y, tuple) else y


@torch.no_grad()
def differences(tokens=40):
    """(family, relative L2 of a block with megamoe's experts against the block's own float32 output)."""
    torch.manual_seed(0)
    for name, block in small_blocks():
        for parameter in block.parameters():
            parameter.normal_(std=0.05)
            parameter.copy_(parameter.to(torch.bfloat16))
        x = torch.randn(2, tokens // 2, 256).to(torch.bfloat16).float()
        wanted = output_of(block, x)
        assert replace_experts(block, max_tokens=32) == 1
        got = output_of(block, x)
        yield name, ((got - wanted).norm() / wanted.norm()).item()


def main():
    worst = 0.0
    for name, difference in differences():
        print(f"{name:12} relative L2 {difference:.1e}")
        worst = max(worst, difference)
    sys.exit(worst > 1e-2)


if __name__ == "__main__":
    main()
