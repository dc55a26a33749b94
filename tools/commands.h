// The commands of `myriad`, one file a family. Each adds itself to the program; when it has run,
// `status` is 0, or 1 if a check failed or a run stopped. Error and Failure are caught in main.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace myriad {

class SignalThread;

// Asks `signals` to let INT, TERM and HUP end the run in good order.
void add_train(CLI::App& app, int& status, SignalThread& signals);
void add_ckpt(CLI::App& app, int& status);
void add_export(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);
void add_verify_layouts(CLI::App& verify, int& status);
void add_verify_predictions(CLI::App& verify, int& status);
void add_show(CLI::App& app, int& status);
void add_show_keys(CLI::App& show);  // its sub-command
void add_data(CLI::App& app, int& status);
void add_data_encode(CLI::App& data, int& status);
void add_data_show(CLI::App& data, int& status);
void add_simulate(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);

// "-s KEY=VALUE", any number of times.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides, const char* example);
void add_json(CLI::App& command, bool& json);
void print_json(const nlohmann::json& line);  // the one line on standard output
// "Examples:" below the help.
void add_examples(CLI::App& command, const std::vector<std::string>& examples);

}  // namespace myriad
