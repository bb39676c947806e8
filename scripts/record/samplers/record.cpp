// Records what llama.cpp's samplers leave of fixed logits, as JSON on stdout. A case has the options by hone's names, the tokens
// so far, and the probabilities of the tokens that are left, in the order of their ids. scripts/record.sh samplers builds and
// runs it.
#include "llama-sampler.h"
#include "llama.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

using Tokens = std::vector<llama_token>;
using Chain = std::vector<llama_sampler *>;

// The seed of what llama.cpp draws; XTC and Mirostat draw.
static const uint32_t seed = 7;
// The only token that no repetition of DRY extends over.
static const llama_token breaker = 5;
// More tokens than any text here has.
static const int all_tokens = 4096;

static bool is_first = true;

// Numbers from 0 to 1 that are the same on every machine.
static double next_number(uint64_t & state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return double(state >> 40) / double(1 << 24);
}

static std::vector<float> random_logits(size_t n, uint64_t state, const std::function<double(double)> & shape) {
    std::vector<float> logits(n);
    for (auto & logit : logits) {
        // Few digits, so that the file is small.
        logit = float(std::round(1000.0 * shape(next_number(state))) / 1000.0);
    }
    return logits;
}

static const std::map<std::string, std::vector<float>> & vectors() {
    static const std::map<std::string, std::vector<float>> all = {
        {"flat", random_logits(40, 1, [](double x) { return x; })},
        {"peaked", random_logits(60, 2, [](double x) { return 14.0 * x * x * x * x - 3.0; })},
        {"wide", random_logits(120, 3, [](double x) { return -2.0 * std::log(1.0 - x) - 4.0; })},
    };
    return all;
}

static std::vector<llama_token_data> candidates(const std::vector<float> & logits) {
    std::vector<llama_token_data> tokens;
    for (size_t id = 0; id < logits.size(); ++id) {
        tokens.push_back({llama_token(id), logits[id], 0.0f});
    }
    return tokens;
}

static void print_tokens(const Tokens & tokens) {
    printf("[");
    for (size_t i = 0; i < tokens.size(); ++i) {
        printf("%s%d", i ? "," : "", tokens[i]);
    }
    printf("]");
}

static void print_left(const llama_token_data_array & left) {
    std::map<llama_token, double> weights;
    double largest = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < left.size; ++i) {
        largest = std::max(largest, double(left.data[i].logit));
    }
    for (size_t i = 0; i < left.size; ++i) {
        const double weight = std::exp(double(left.data[i].logit) - largest);
        if (weight > 0.0) {
            weights[left.data[i].id] = weight;
        }
        sum += weight;
    }
    const char * separator = "";
    printf("[");
    for (const auto & [id, weight] : weights) {
        printf("%s[%d,%.7g]", separator, id, weight / sum);
        separator = ",";
    }
    printf("]");
}

static void begin_case(const std::string & logits, const std::string & options, const Tokens & history) {
    printf("%s\n  {\"logits\":\"%s\",\"options\":{%s},\"history\":", is_first ? "" : ",", logits.c_str(), options.c_str());
    print_tokens(history);
    is_first = false;
}

// One choice after the tokens of a text.
static void record(const std::string & logits, const std::string & options, const Tokens & history, const Chain & samplers) {
    begin_case(logits, options, history);
    auto tokens = candidates(vectors().at(logits));
    llama_token_data_array left = {tokens.data(), tokens.size(), -1, false};
    for (auto * sampler : samplers) {
        for (auto token : history) {
            llama_sampler_accept(sampler, token);
        }
        llama_sampler_apply(sampler, &left);
        llama_sampler_free(sampler);
    }
    printf(",\"left\":");
    print_left(left);
    printf("}");
}

// Several choices in a row: Mirostat learns from each.
static void record_mirostat(const std::string & logits, float tau, float eta, int n) {
    char options[100];
    snprintf(options, sizeof options, "\"mirostat\":{\"tau\":%g,\"eta\":%g}", tau, eta);
    begin_case(logits, options, {});
    auto * sampler = llama_sampler_init_mirostat_v2(seed, tau, eta);
    printf(",\"steps\":[");
    for (int step = 0; step < n; ++step) {
        auto tokens = candidates(vectors().at(logits));
        llama_token_data_array left = {tokens.data(), tokens.size(), -1, false};
        llama_sampler_apply(sampler, &left);
        printf("%s{\"chosen\":%d,\"left\":", step ? "," : "", left.data[left.selected].id);
        print_left(left);
        printf("}");
    }
    printf("]}");
    llama_sampler_free(sampler);
}

static void record_dry() {
    // A repetition that overlaps itself, several that end alike, one behind a breaker, and one that only a breaker continues.
    const std::vector<Tokens> texts = {
        {1, 2, 3, 4, 1, 2, 3},
        {7, 7, 7, 7, 7, 7},
        {1, 2, 3, 8, 9, 2, 3, 6, 0, 1, 2, 3},
        {1, 2, 5, 3, 4, 6, 1, 2, 5, 3, 4},
        {1, 2, 3, 5, 6, 1, 2, 3},
        {3, 1, 4, 1, 9, 2, 6, 9, 3, 1, 4, 1, 9, 2, 6, 9, 3, 1, 4, 1, 9},
    };
    struct Dry { float multiplier, base; int allowed, window; };
    for (const auto & text : texts) {
        for (const auto & dry : {Dry{0.8f, 1.75f, 2, 0}, Dry{0.3f, 1.2f, 1, 0}, Dry{1.5f, 2.5f, 3, 8}}) {
            char options[160];
            snprintf(options, sizeof options, "\"dry\":{\"multiplier\":%g,\"base\":%g,\"allowed_length\":%d,\"window\":%d}",
                     dry.multiplier, dry.base, dry.allowed, dry.window);
            // Here hone's 0 stands for all tokens, llama.cpp's for none.
            const int window = dry.window ? dry.window : all_tokens;
            const std::vector<Tokens> breakers = {{breaker}};
            record("flat", options, text,
                   {llama_sampler_init_dry_testing(dry.multiplier, dry.base, dry.allowed, window, breakers)});
        }
    }
}

static void record_xtc() {
    for (const auto * logits : {"flat", "peaked", "wide"}) {
        for (float threshold : {0.02f, 0.05f, 0.1f, 0.3f}) {
            const std::string xtc = "\"xtc\":{\"probability\":1,\"threshold\":" + std::to_string(threshold) + "}";
            record(logits, xtc, {}, {llama_sampler_init_xtc(1.0f, threshold, 1, seed)});
            record(logits, xtc + ",\"top_k\":10", {},
                   {llama_sampler_init_top_k(10), llama_sampler_init_xtc(1.0f, threshold, 1, seed)});
        }
    }
}

static void record_the_others() {
    for (const auto * logits : {"flat", "peaked", "wide"}) {
        for (float n : {0.5f, 1.0f, 2.0f}) {
            record(logits, "\"top_n_sigma\":" + std::to_string(n), {}, {llama_sampler_init_top_n_sigma(n)});
        }
        struct Temperature { float middle, range, exponent; };
        for (const auto & heat : {Temperature{1.0f, 0.5f, 1.0f}, Temperature{0.7f, 0.9f, 2.0f}, Temperature{1.5f, 1.5f, 0.5f}}) {
            char options[160];
            snprintf(options, sizeof options, "\"temperature\":%g,\"dynamic_temperature\":{\"range\":%g,\"exponent\":%g}",
                     heat.middle, heat.range, heat.exponent);
            record(logits, options, {}, {llama_sampler_init_temp_ext(heat.middle, heat.range, heat.exponent)});
        }
        for (float tau : {2.0f, 5.0f}) {
            record_mirostat(logits, tau, 0.2f, 4);
        }
    }
}

// All of them, in the order in which llama.cpp asks them.
static void record_all_together() {
    const Tokens text = {1, 2, 3, 4, 1, 2, 3};
    for (const auto * logits : {"flat", "peaked", "wide"}) {
        record(logits,
               "\"repetition_penalty\":1.3,\"frequency_penalty\":0.2,\"presence_penalty\":0.1,\"penalty_window\":5,"
               "\"dry\":{\"multiplier\":0.8,\"base\":1.75,\"allowed_length\":2,\"window\":0},\"top_n_sigma\":3,\"top_k\":30,"
               "\"top_p\":0.97,\"min_p\":0.02,\"xtc\":{\"probability\":1,\"threshold\":0.2},\"temperature\":0.8,"
               "\"dynamic_temperature\":{\"range\":0.3,\"exponent\":1}",
               text,
               {llama_sampler_init_penalties(int32_t(vectors().at(logits).size()), 5, 1.3f, 0.2f, 0.1f),
                llama_sampler_init_dry_testing(0.8f, 1.75f, 2, all_tokens, {{breaker}}), llama_sampler_init_top_n_sigma(3.0f),
                llama_sampler_init_top_k(30), llama_sampler_init_top_p(0.97f, 1), llama_sampler_init_min_p(0.02f, 1),
                llama_sampler_init_xtc(1.0f, 0.2f, 1, seed), llama_sampler_init_temp_ext(0.8f, 0.3f, 1.0f)});
    }
}

int main() {
    printf("{\"recorded_with\":\"%s\",\"breaker\":%d,\"logits\":{", RECORDED_WITH, breaker);
    const char * separator = "";
    for (const auto & [name, logits] : vectors()) {
        printf("%s\n  \"%s\":[", separator, name.c_str());
        for (size_t i = 0; i < logits.size(); ++i) {
            printf("%s%g", i ? "," : "", logits[i]);
        }
        printf("]");
        separator = ",";
    }
    printf("},\n\"cases\":[");
    record_dry();
    record_xtc();
    record_the_others();
    record_all_together();
    printf("\n]}\n");
}
