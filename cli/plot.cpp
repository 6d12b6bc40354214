#include "cli/plot.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace megamoe::cli {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 440;
constexpr double kLeft = 104;   // room for eight digits
constexpr double kRight = 110;  // the names of the lines stand there
constexpr double kTop = 64;
constexpr double kBottom = 64;
// Between the outermost points and the frame, as a part of an axis: no point lies on a line.
constexpr double kPadding = 0.05;
constexpr double kLeastTickDistance = 34;  // the width of a label
constexpr std::size_t kMostTitleBytes = 72;
// Told apart by colour-blind readers as well, and on paper.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"};

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

/// Without its middle where it is long: a path begins and ends with what tells it apart.
std::string shortened(const std::string& text) {
  if (text.size() <= kMostTitleBytes) return text;
  std::size_t front = kMostTitleBytes / 3;
  std::size_t back = text.size() - 2 * kMostTitleBytes / 3;
  while (front > 0 && continues_character(text[front])) --front;
  while (back < text.size() && continues_character(text[back])) ++back;
  return text.substr(0, front) + "\u2026" + text.substr(back);
}

/// 0.5, 200, 20 000: four digits that count, whole numbers in groups of three digits.
std::string number_text(double value) {
  if (value < 1000 || value >= 1e15) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, "\u00a0");
  return digits;
}

/// A logarithmic axis from `low` to `high`, which are widened to differ.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  double begin = 0;  ///< in the picture
  double end = 0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void settle() {
    if (high <= 0) low = high = 1;
    if (high < 1.5 * low) {
      low /= 1.5;
      high *= 1.5;
    }
    const double room = std::pow(high / low, kPadding);
    low /= room;
    high *= room;
  }
  double at(double value) const {
    return begin + (end - begin) * std::log(value / low) / std::log(high / low);
  }
  /// Whether labels at all of these, ascending, leave each other room.
  bool has_room_for(const std::vector<double>& values) const {
    for (std::size_t n = 1; n < values.size(); ++n) {
      if (std::fabs(at(values[n]) - at(values[n - 1])) < kLeastTickDistance) return false;
    }
    return !values.empty();
  }
  /// 1, 2 and 5 times powers of ten inside; powers alone where that would be too many.
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    const bool many = high / low > 20000;
    for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, power) <= high;
         ++power) {
      for (double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * std::pow(10.0, power);
        if (tick >= low * 0.999 && tick <= high * 1.001 && (digit == 1 || !many)) {
          ticks.push_back(tick);
        }
      }
    }
    return ticks;
  }
};

bool drawable(const std::pair<double, double>& point) {
  return point.first > 0 && point.second > 0;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string grid(const Axis& x, const std::vector<double>& x_ticks, const Axis& y) {
  std::string out = "<g stroke=\"#dddddd\">\n";
  const auto line = [&out](double x1, double y1, double x2, double y2) {
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1, y1,
                       x2, y2);
  };
  for (double tick : x_ticks) line(x.at(tick), y.begin, x.at(tick), y.end);
  for (double tick : y.ticks()) line(x.begin, y.at(tick), x.end, y.at(tick));
  out += "</g>\n<g stroke=\"black\">\n";
  line(x.begin, y.begin, x.end, y.begin);
  line(x.begin, y.begin, x.begin, y.end);
  out += "</g>\n";
  for (double tick : x_ticks) {
    out += text_at(x.at(tick), y.begin + 18, "middle", number_text(tick));
  }
  for (double tick : y.ticks()) {
    out += text_at(x.begin - 8, y.at(tick) + 4, "end", number_text(tick));
  }
  return out;
}

std::string draw(const Series& series, const char* colour, const Axis& x, const Axis& y) {
  std::string line;
  std::string dots;
  for (const auto& point : series.points) {
    if (!drawable(point)) continue;
    line += fmt::format("{:.1f},{:.1f} ", x.at(point.first), y.at(point.second));
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}: {}, "
        "{}</title></circle>\n",
        x.at(point.first), y.at(point.second), colour, escaped(series.name),
        number_text(point.first), number_text(point.second));
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                     line, colour) +
         dots;
}

}  // namespace

std::string line_chart(const Chart& chart) {
  Axis x{.begin = kLeft, .end = kWidth - kRight};
  Axis y{.begin = kHeight - kBottom, .end = kTop};
  std::set<double> measured;
  for (const Series& series : chart.series) {
    for (const auto& point : series.points) {
      if (!drawable(point)) continue;
      x.include(point.first);
      measured.insert(point.first);
      y.include(point.second);
    }
  }
  x.settle();
  y.settle();
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight);
  out += fmt::format("<g font-size=\"14\">{}</g>\n",
                     text_at(kLeft, 26, "start", shortened(chart.title)));
  out += fmt::format("<g fill=\"#555555\">{}</g>\n",
                     text_at(kLeft, 46, "start", shortened(chart.subtitle)));
  const std::vector<double> own(measured.begin(), measured.end());
  out += grid(x, x.has_room_for(own) ? own : x.ticks(), y);
  out += text_at((x.begin + x.end) / 2, kHeight - 20, "middle", chart.x_label);
  out += fmt::format("<text transform=\"translate(20,{:.1f}) rotate(-90)\" text-anchor=\"middle\">",
                     (y.begin + y.end) / 2) +
         escaped(chart.y_label) + "</text>\n";
  for (std::size_t n = 0; n < chart.series.size(); ++n) {
    const char* colour = kColours[n % std::size(kColours)];
    const double height = kTop + 12 + 20 * static_cast<double>(n);
    out += draw(chart.series[n], colour, x, y);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"4\" fill=\"{}\"/>\n",
                       x.end + 16, height - 6, colour);
    out += text_at(x.end + 40, height, "start", chart.series[n].name);
  }
  return out + "</svg>\n";
}

}  // namespace megamoe::cli
