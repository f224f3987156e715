"""Gaussian processes, random Fourier features, acquisition and maximisers: pure functions of arrays.

Inputs lie in the unit cube, larger values are better, and all random numbers come from the caller's generator.

The whole project uses the same letters:

| paper (FTS)           | code                        | shape      | meaning                                          |
|-----------------------|-----------------------------|------------|--------------------------------------------------|
| t, t_n                | `n`                         |            | observations of one agent                        |
| M                     | `m`                         |            | random features                                  |
| D                     | `d`, `dim`                  |            | inputs                                           |
| N                     | `k`                         |            | agents                                           |
| X_t                   | `x`                         | `(n, d)`   | points in `[0, 1]^d`                             |
| y_t                   | `y`                         | `(n,)`     | noisy values                                     |
| s_i                   | `features.frequencies`      | `(m, d)`   | frequencies of the features                      |
| b_i                   | `features.phases`           | `(m,)`     | phases in `[0, 2 pi)`                            |
| l                     | `length_scale`              | `()`, `(d,)` | length scale of the kernel                     |
| sigma_0^2             | `variance`                  | `()`       | signal variance                                  |
| sigma^2               | `noise_variance`            | `()`       | noise variance                                   |
| phi(x), Phi(X_t)      | `phi(features, x)`          | `(n, m)`   | feature rows                                     |
| Sigma_t               | `R'R`, `model.factor`       | `(m, m)`   | Phi'Phi + sigma^2 I, kept as a square root R     |
| nu_t                  | `mean(model)`               | `(m,)`     | posterior mean of the weights                    |
| omega                 | `omega`, `draw.weights`     | `(m,)`     | one draw of the weights; FTS's message           |
| k_t(x), K_t           | `kernel(x, z)`              | `(n, n')`  | exact kernel                                     |
| f_t                   | `Draw`                      |            | a function drawn from the agent's own posterior  |
| beta_t                | `beta`                      | `()`       | the draw's standard deviation is multiplied by it |
"""
