// Opening text and checkpoint, then forward passes only.
#include "runtime/train/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/make_device.h"
#include "runtime/checkpoint/checkpoint_parameters.h"
#include "runtime/data/token_dataset.h"
#include "runtime/fatal_error.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/sample_loader.h"

namespace adaptive_train {
namespace {

Result<TokenDataset> OpenText(const EvaluationRequest& request) {
  auto format = ParseTokenFormat(request.format);
  if (!format) return tl::unexpected(format.error());
  auto file = TokenFile::Open("--data", request.data, *format);
  if (!file) return tl::unexpected(file.error());
  const std::int64_t size = file->size();
  auto shared = std::make_shared<const TokenFile>(std::move(*file));
  return TokenDataset::Of(shared, shared->where(), 0, size, request.dims.sequence,
                          request.text_vocab, static_cast<std::uint64_t>(request.seed));
}

/// The sum of the losses of windows [0, count).
double SumOfLosses(TransformerStage<float>& stage, SampleLoader& loader, std::int64_t count,
                   std::int64_t batch) {
  MicroBatchState<float> state = stage.NewState();
  double loss = 0;
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < count; ++i) {
    windows.push_back(i);
    if (static_cast<std::int64_t>(windows.size()) < batch && i + 1 < count) continue;
    loss += stage.Loss(state, loader.Validation(windows));
    windows.clear();
  }
  return loss;
}

}  // namespace

Result<Evaluation> Evaluate(const EvaluationRequest& request) {
  auto text = OpenText(request);
  if (!text) return tl::unexpected(text.error());
  auto entropy = text->UnigramEntropy();
  if (!entropy) return tl::unexpected(entropy.error());
  const ParameterLayout layout(request.dims, StageSlice::Whole(request.dims));
  const auto computes = kernels::MakeCpuDevice<float>(static_cast<int>(request.threads));
  kernels::Device<float>& device = *computes;
  kernels::Buffer<float> parameters(device, static_cast<std::size_t>(layout.size()));
  auto read = ReadParameters(request.checkpoint, request.dims, layout, {{0, layout.size()}}, device,
                             parameters.span());
  if (!read) return tl::unexpected(read.error());

  Evaluation evaluation;
  evaluation.unigram_entropy = *entropy;
  evaluation.samples =
      request.samples == 0 ? text->samples() : std::min(request.samples, text->samples());
  evaluation.data = text->file().Description();
  evaluation.device = device.Description();
  const Datasets data{*text, *text};
  SampleLoader loader(request.dims, data, static_cast<std::uint64_t>(request.seed), 1);
  evaluation.targets = evaluation.samples * loader.targets_per_sample();
  kernels::Buffer<float> no_gradients(device, parameters.size());
  const StageOptions options{.micro_batch = request.batch, .recompute = Recompute::kFull};
  StageWorkspace<float> workspace(request.dims, true, options, device);
  TransformerStage<float> stage(request.dims, StageSlice::Whole(request.dims), options, device,
                                {layout, parameters.span(), no_gradients.span()}, workspace);
  const auto begin = std::chrono::steady_clock::now();
  try {
    evaluation.loss = SumOfLosses(stage, loader, evaluation.samples, request.batch) /
                      static_cast<double>(evaluation.targets);
  } catch (const FatalError& error) {
    return Fail(error.Cause());
  }
  evaluation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return evaluation;
}

}  // namespace adaptive_train
