// Tests that calls return the errors of exceptions.

#include "cudnn_rnn/cc/core/exceptions.h"

#include <new>
#include <stdexcept>
#include <string>

#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

template <typename Exception>
Status StatusOf(const Exception& exception) {
  return CatchExceptions([&]() -> Status { throw exception; });
}

TEST(ExceptionsBecomeErrors) {
  EXPECT(CatchExceptions([] { return Status(); }).ok());
  for (const Status& status :
       {StatusOf(std::bad_alloc()), StatusOf(std::length_error("a vector"))}) {
    EXPECT(status.code() == StatusCode::kResourceExhausted);
    EXPECT(status.message() == kOutOfHostMemoryText, status.message());
  }
  const Status status = StatusOf(std::runtime_error("a reason"));
  EXPECT(status.code() == StatusCode::kInternal && status.message() == "a reason",
         status.message());
  EXPECT(StatusOf(7).code() == StatusCode::kInternal);
  EXPECT_ERROR(StatusOf(7), "exception of unknown type");
}

}  // namespace
}  // namespace cudnn_rnn
