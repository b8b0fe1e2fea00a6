#include "tests/bench/bare_products.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>
#include <stdlib.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/tile_product.h"
#include "tests/bench/best_seconds.h"

namespace adaptive_train {
namespace {

constexpr int kRepetitions = 8;
// Of CBLAS.
constexpr int kRowMajor = 101, kNotTransposed = 111, kTransposed = 112;

std::vector<float> Ones(std::int64_t rows, std::int64_t columns) {
  return std::vector<float>(static_cast<std::size_t>(rows * columns), 1.0F);
}

void OneDnnSgemm(int, int transpose_a, int transpose_b, int rows, int columns, int inner,
                 float alpha, const float* a, int stride_a, const float* b, int stride_b,
                 float beta, float* c, int stride_c) {
  const auto letter = [](int transpose) { return transpose == kTransposed ? 'T' : 'N'; };
  dnnl_sgemm(letter(transpose_a), letter(transpose_b), rows, columns, inner, alpha, a, stride_a, b,
             stride_b, beta, c, stride_c);
}

double OneDnnBFloat16(const ProductShape& shape) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto like = [](std::int64_t rows, std::int64_t columns, memory::data_type type) {
    return memory::desc({rows, columns}, type, memory::format_tag::any);
  };
  const dnnl::matmul::primitive_desc described(
      dnnl::matmul::desc(like(shape.rows, shape.inner, memory::data_type::bf16),
                         like(shape.inner, shape.columns, memory::data_type::bf16),
                         like(shape.rows, shape.columns, memory::data_type::f32)),
      engine);
  const dnnl::matmul product(described);
  const std::unordered_map<int, memory> operands = {
      {DNNL_ARG_SRC, memory(described.src_desc(), engine)},
      {DNNL_ARG_WEIGHTS, memory(described.weights_desc(), engine)},
      {DNNL_ARG_DST, memory(described.dst_desc(), engine)}};
  for (const int operand : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS})  // so that no page is missing
    std::fill_n(static_cast<char*>(operands.at(operand).get_data_handle()),
                operands.at(operand).get_desc().get_size(), 0);
  return BestSeconds(kRepetitions, [&] {
    product.execute(stream, operands);
    stream.wait();
  });
}

}  // namespace

BareProducts::BareProducts() {
  omp_set_num_threads(1);
  const dnnl_version_t* version = dnnl_version();
  libraries_.push_back(
      {fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch),
       OneDnnSgemm});
  // OpenBLAS does not know some virtual processors by their numbers.
  if (__builtin_cpu_supports("avx2"))
    ::setenv("OPENBLAS_CORETYPE", __builtin_cpu_supports("avx512f") ? "SKYLAKEX" : "HASWELL", 0);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  ::setenv("BLIS_NUM_THREADS", "1", 1);
  Open("OpenBLAS", "libopenblas.so.0");
  Open("BLIS", "libblis.so.4");
}

void BareProducts::Open(const std::string& name, const char* file) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void* sgemm = library == nullptr ? nullptr : ::dlsym(library, "cblas_sgemm");
  if (sgemm != nullptr) libraries_.push_back({name, reinterpret_cast<Sgemm>(sgemm)});
}

std::string BareProducts::Libraries() const {
  std::string names;
  for (const Library& library : libraries_) names += (names.empty() ? "" : ", ") + library.name;
  return names;
}

const BareProducts::Time& BareProducts::Float(const ProductShape& shape) {
  const auto [known, fresh] = float_.try_emplace(shape);
  if (!fresh) return known->second;
  const std::vector<float> a = Ones(shape.rows, shape.inner), b = Ones(shape.inner, shape.columns);
  std::vector<float> c = Ones(shape.rows, shape.columns);
  const auto rows = static_cast<int>(shape.rows), columns = static_cast<int>(shape.columns),
             inner = static_cast<int>(shape.inner);
  for (const Library& library : libraries_) {
    const double seconds = BestSeconds(kRepetitions, [&] {
      library.sgemm(kRowMajor, shape.transpose_a ? kTransposed : kNotTransposed,
                    shape.transpose_b ? kTransposed : kNotTransposed, rows, columns, inner, 1,
                    a.data(), shape.transpose_a ? rows : inner, b.data(),
                    shape.transpose_b ? inner : columns, 0, c.data(), columns);
    });
    if (known->second.library.empty() || seconds < known->second.seconds)
      known->second = {seconds, library.name};
  }
  return known->second;
}

const BareProducts::Time* BareProducts::BFloat16(const ProductShape& asked) {
  if (kernels::cpu::TileUnitHere() == kernels::cpu::TileUnit::kNone) return nullptr;
  const ProductShape shape{asked.rows, asked.columns, asked.inner};
  const auto [known, fresh] = bfloat16_.try_emplace(shape);
  if (fresh) known->second = {OneDnnBFloat16(shape), libraries_.front().name + " bfloat16"};
  return &known->second;
}

}  // namespace adaptive_train
