// A line chart as a small SVG file: both axes logarithmic, for times over counts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megamoe::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x and y, both positive, x ascending
};

struct Chart {
  std::string title;     ///< shortened in its middle where the picture is too narrow
  std::string subtitle;  ///< what was measured on what; may be empty
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
};

/// A whole SVG document. The points' own x are marked where there is room for all of them. Points
/// that are not positive are left out.
std::string line_chart(const Chart& chart);

}  // namespace megamoe::cli
