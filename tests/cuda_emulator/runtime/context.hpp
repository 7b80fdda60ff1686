// A saved execution context: a stack and its stack pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

#if defined(__x86_64__)

// Saves the callee-saved registers, swaps stacks, and returns on the other one.
extern "C" void cuda_on_cpu_switch(void** saved_stack, void* next_stack);
asm(R"(
    .text
    .globl cuda_on_cpu_switch
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

class Context {
    void* stack_ = nullptr;

  public:
    // The first switch here calls `entry`, which must not return.
    void prepare(char* stack, std::size_t bytes, void (*entry)()) {
        auto* top = reinterpret_cast<std::uintptr_t*>((reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15});
        *--top = 0; // where a caller's return address would be
        *--top = reinterpret_cast<std::uintptr_t>(entry);
        for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = 0;
        stack_ = top;
    }

    void prefetch() const {
        for (std::size_t offset = 0; offset < 256; offset += 64)
            __builtin_prefetch(static_cast<const char*>(stack_) + offset);
    }

    void switch_to(Context& next) { cuda_on_cpu_switch(&stack_, next.stack_); }
};

#else

class Context {
    ucontext_t context_{};

  public:
    void prepare(char* stack, std::size_t bytes, void (*entry)()) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        makecontext(&context_, entry, 0);
    }

    void prefetch() const {}

    void switch_to(Context& next) { swapcontext(&context_, &next.context_); }
};

#endif

} // namespace cuda_on_cpu
