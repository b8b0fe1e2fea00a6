#include "runtime/checkpoint/checkpoint_parameters.h"

#include <fmt/format.h>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_reader.h"

namespace adaptive_train {

Result<std::int64_t> ReadParameters(const std::string& folder, const ModelDims& dims,
                                    const ParameterLayout& layout, const ElementRanges& ranges,
                                    kernels::DeviceMemory& memory, std::span<float> parameters,
                                    const std::function<void()>& on_block) {
  auto reader = CheckpointReader::Open(folder);
  if (!reader) return tl::unexpected(reader.error());
  const std::string& identity = reader->manifest().at.identity;
  const std::string model = IdentityOf(dims);
  if (!identity.starts_with(model + ","))
    return Fail(fmt::format("{}: of a run with {}, not {}", folder, Printable(identity), model),
                ExitCode::kRankFailure);
  const ParameterLayout whole(dims, StageSlice::Whole(dims));
  auto same = reader->Expect(identity, ParametersOf(whole));
  if (!same) return tl::unexpected(same.error());
  reader->OnBlock(on_block);
  auto read = reader->Read({BlocksOf(layout), ranges}, {&memory, {parameters}});
  if (!read) return tl::unexpected(read.error());
  return reader->manifest().at.step;
}

}  // namespace adaptive_train
