//! The colours of the style sheet, as people see them.

use super::super::CHART_STYLE;

type Rgb = [f64; 3];

/// How dichromats see linear RGB: without red, green and blue cones.
const BLINDNESS: [[Rgb; 3]; 3] = [
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
];

fn linear(hex: &str) -> Rgb {
    [1, 3, 5].map(|at| {
        let value = u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour");
        let value = f64::from(value) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    })
}

fn times(matrix: &[Rgb; 3], colour: Rgb) -> Rgb {
    [0, 1, 2].map(|row| {
        (0..3)
            .map(|column| matrix[row][column] * colour[column])
            .sum()
    })
}

/// A space in which distance is difference to the eye.
fn perceived(colour: Rgb) -> Rgb {
    let cones = times(
        &[
            [0.41222147, 0.53633254, 0.05144599],
            [0.21190350, 0.68069955, 0.10739696],
            [0.08830246, 0.28171884, 0.62997870],
        ],
        colour,
    );
    let cones = cones.map(|cone| cone.max(0.0).cbrt());
    times(
        &[
            [0.21045426, 0.79361779, -0.00407205],
            [1.97799850, -2.42859221, 0.45059371],
            [0.02590404, 0.78277177, -0.80867577],
        ],
        cones,
    )
}

fn distance(a: Rgb, b: Rgb) -> f64 {
    let [a, b] = [perceived(a), perceived(b)];
    (0..3)
        .map(|axis| (a[axis] - b[axis]).powi(2))
        .sum::<f64>()
        .sqrt()
}

fn luminance(colour: Rgb) -> f64 {
    0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]
}

fn contrast(a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

/// The colours of the clients for light and for dark paper.
fn colours() -> [(&'static str, &'static str); 8] {
    let find = |style: &'static str, index: usize| {
        let (_, rest) = style
            .split_once(&format!("--k{index}: "))
            .expect("it is there");
        &rest[..7]
    };
    let (light, dark) = CHART_STYLE
        .split_once("prefers-color-scheme: dark")
        .expect("both");
    std::array::from_fn(|index| (find(light, index), find(dark, index)))
}

#[test]
fn no_two_colours_look_alike_to_anybody() {
    let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let light = |pair: (&'static str, &'static str)| pair.0;
    let dark = |pair: (&'static str, &'static str)| pair.1;
    for pick in [
        light as fn((&'static str, &'static str)) -> &'static str,
        dark,
    ] {
        for eye in BLINDNESS.iter().chain([&identity]) {
            let seen = colours()
                .map(|pair| times(eye, linear(pick(pair))).map(|value| value.clamp(0.0, 1.0)));
            for (index, colour) in seen.iter().enumerate() {
                for other in &seen[..index] {
                    assert!(
                        distance(*colour, *other) > 0.06,
                        "{} is too like another",
                        pick(colours()[index])
                    );
                }
            }
        }
    }
}

#[test]
fn every_colour_stands_out_from_the_paper() {
    for (light, dark) in colours() {
        assert!(contrast(linear(light), linear("#fcfcfa")) > 2.0, "{light}");
        assert!(contrast(linear(dark), linear("#15171b")) > 3.0, "{dark}");
    }
}
