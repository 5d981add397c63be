#include "loan.h"

#include <napi.h>
#include <unordered_map>

namespace {

/// The only state that the environments of a process share.
struct Loans {
  std::mutex mutex;
  std::unordered_map<uint32_t, std::shared_ptr<Loan>> byId;
  uint32_t next = 1;
};

Loans& All() {
  // Never destroyed: threads may outlive main.
  static auto* loans = new Loans;
  return *loans;
}

class BorrowedObject : public Napi::ObjectWrap<BorrowedObject> {
 public:
  using Self = BorrowedObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "Borrowed",
                       {InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive")});
  }

  // new Borrowed(number of a loan)
  explicit BorrowedObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    Loans& all = All();
    std::lock_guard<std::mutex> held(all.mutex);
    auto found = all.byId.find(info[0].As<Napi::Number>().Uint32Value());
    if (found != all.byId.end()) loan_ = found->second;
  }

 private:
  // send(), receive(): as those of the socket; nothing moves when it is gone
  Napi::Value Send(const Napi::CallbackInfo& info) { return Move(info, &Lender::SendFrames); }
  Napi::Value Receive(const Napi::CallbackInfo& info) { return Move(info, &Lender::ReceiveFrames); }

  template <typename Count>
  Napi::Value Move(const Napi::CallbackInfo& info, Count (Lender::*frames)()) {
    Count moved = 0;
    if (loan_) {
      std::lock_guard<std::mutex> held(loan_->mutex);
      if (loan_->lender != nullptr) moved = (loan_->lender->*frames)();
    }
    return Napi::Number::New(info.Env(), moved);
  }

  std::shared_ptr<Loan> loan_;
};

}  // namespace

uint32_t Lender::Lend() {
  if (loan_) return loan_->id;
  loan_ = std::make_shared<Loan>();
  loan_->lender = this;
  Loans& all = All();
  std::lock_guard<std::mutex> held(all.mutex);
  while (all.next == 0 || all.byId.count(all.next) != 0) all.next++;
  loan_->id = all.next++;
  all.byId[loan_->id] = loan_;
  return loan_->id;
}

void Lender::Withdraw() {
  if (!loan_) return;
  {
    std::lock_guard<std::mutex> held(loan_->mutex);
    loan_->lender = nullptr;
  }
  Loans& all = All();
  std::lock_guard<std::mutex> held(all.mutex);
  all.byId.erase(loan_->id);
  loan_.reset();
}

Napi::Function Borrowed(Napi::Env env) { return BorrowedObject::Define(env); }
