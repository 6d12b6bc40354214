// Everything. A first program:
//
//   auto checkpoint = megamoe::load_layer("model", 0);
//   checkpoint.config.max_tokens = 512;
//   megamoe::Layer layer(checkpoint.config, checkpoint.weights, megamoe::Group::single());
//   auto batch = layer.batch(tokens);                       // views into the arena
//   batch.x_bf16 = hidden_states;                           // or fill batch.x and batch.x_scales
//   megamoe::route(checkpoint.router, hidden_states, batch.experts, batch.weights);
//   layer.forward(batch, y);
//   std::cout << layer.explain();
#pragma once

#include "megamoe/backend.hpp"
#include "megamoe/checkpoint.hpp"
#include "megamoe/error.hpp"
#include "megamoe/group.hpp"
#include "megamoe/layer.hpp"
#include "megamoe/mqa_logits.hpp"
#include "megamoe/router.hpp"
#include "megamoe/types.hpp"
#include "megamoe/version.hpp"
#include "megamoe/weights.hpp"
