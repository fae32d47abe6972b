package thompson

import (
	"math"
	"math/rand/v2"
)

// features is how many numbers a linear model rates.
const features = 9

type (
	vector [features]float64
	matrix [features][features]float64
)

// linear is a Bayesian regression: what reward is to be expected of features,
// and how sure that is. The belief about the weights is normal with mean
// precision⁻¹·moment and covariance precision⁻¹.
type linear struct {
	precision matrix // symmetric
	moment    vector

	// mean and root are derived from these when a sample is wanted. Covariance is
	// root·rootᵀ.
	derived bool
	mean    vector
	root    matrix
}

// newLinear returns a model that knows nothing but that weights are around zero,
// the surer the greater the ridge.
func newLinear(ridge float64) linear {
	var m linear
	for i := range features {
		m.precision[i][i] = ridge
	}
	return m
}

// learn takes in one reward. What was learned before counts forget of what it
// did, but never less than at the beginning.
func (m *linear) learn(x *vector, reward, forget, ridge float64) {
	for i := range features {
		for j := range i + 1 {
			v := forget*m.precision[i][j] + x[i]*x[j]
			if i == j {
				v += (1 - forget) * ridge
			}
			m.precision[i][j], m.precision[j][i] = v, v
		}
		m.moment[i] = forget*m.moment[i] + reward*x[i]
	}
	m.derived = false
}

// sureness is the mean precision of the weights.
func (m *linear) sureness() float64 {
	trace := 0.0
	for i := range features {
		trace += m.precision[i][i]
	}
	return trace / features
}

// fade makes the belief less sure, as if a part of its lessons had been given.
// What it believes stays the same.
func (m *linear) fade(part float64) {
	if part == 1 {
		return
	}
	for i := range features {
		for j := range features {
			m.precision[i][j] *= part
		}
		m.moment[i] *= part
	}
	m.derived = false
}

// sample returns weights drawn from the belief, with its deviation scaled.
func (m *linear) sample(r *rand.Rand, scale float64) vector {
	if !m.derived {
		m.derive()
	}
	var z vector
	for i := range z {
		z[i] = r.NormFloat64()
	}
	w := m.mean
	for i := range features {
		for j := range features {
			w[i] += scale * m.root[i][j] * z[j]
		}
	}
	return w
}

// The jitter that makes a matrix positive definite which rounding has left on
// the edge, and the floor of its eigenvalues if that did not help.
const (
	leastJitter = 1e-9
	mostJitter  = 1e-3
	eigenFloor  = 1e-10
)

// derive computes mean and root.
func (m *linear) derive() {
	m.derived = true
	l, ok := cholesky(&m.precision, 0)
	for jitter := leastJitter; !ok && jitter <= mostJitter; jitter *= 10 {
		l, ok = cholesky(&m.precision, jitter)
	}
	if ok {
		m.root = invertedTransposed(&l)
	} else {
		values, vectors := eigen(m.precision)
		for j := range features {
			scale := 1 / math.Sqrt(max(values[j], eigenFloor))
			for i := range features {
				m.root[i][j] = vectors[i][j] * scale
			}
		}
	}
	// The mean is root·rootᵀ·moment.
	var half vector
	for j := range features {
		for i := range features {
			half[j] += m.root[i][j] * m.moment[i]
		}
	}
	for i := range features {
		m.mean[i] = 0
		for j := range features {
			m.mean[i] += m.root[i][j] * half[j]
		}
	}
}

// cholesky returns the lower triangle L with L·Lᵀ = a + jitter·I, if there is
// one.
func cholesky(a *matrix, jitter float64) (l matrix, ok bool) {
	for i := range features {
		for j := range i + 1 {
			sum := a[i][j]
			if i == j {
				sum += jitter
			}
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			switch {
			case i != j:
				l[i][j] = sum / l[j][j]
			case !(sum > 0) || math.IsInf(sum, 0):
				return l, false
			default:
				l[i][i] = math.Sqrt(sum)
			}
		}
	}
	return l, true
}

// invertedTransposed returns L⁻ᵀ of a lower triangle, which is an upper one.
func invertedTransposed(l *matrix) (u matrix) {
	for j := range features {
		u[j][j] = 1 / l[j][j]
		for i := j + 1; i < features; i++ {
			sum := 0.0
			for k := j; k < i; k++ {
				sum -= l[i][k] * u[j][k]
			}
			u[j][i] = sum / l[i][i]
		}
	}
	return u
}

// eigen returns the eigenvalues of a symmetric matrix and, in columns, its
// eigenvectors, by the method of Jacobi: rotations take away one pair of
// elements off the diagonal at a time, and each sweep over all pairs at least
// squares what is left.
func eigen(a matrix) (values vector, vectors matrix) {
	for i := range features {
		vectors[i][i] = 1
	}
	const sweeps = 32 // six or seven are enough for this size
	for range sweeps {
		off := 0.0
		for p := range features {
			for q := p + 1; q < features; q++ {
				off += a[p][q] * a[p][q]
				rotate(&a, &vectors, p, q)
			}
		}
		if off == 0 {
			break
		}
	}
	for i := range features {
		values[i] = a[i][i]
	}
	return values, vectors
}

// rotate turns the plane of p and q so that a[p][q] becomes zero.
func rotate(a, vectors *matrix, p, q int) {
	if a[p][q] == 0 {
		return
	}
	theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
	t := 1 / (math.Abs(theta) + math.Hypot(theta, 1))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Hypot(t, 1)
	s := t * c
	a[p][p] -= t * a[p][q]
	a[q][q] += t * a[p][q]
	a[p][q], a[q][p] = 0, 0
	for k := range features {
		if k != p && k != q {
			kp, kq := a[k][p], a[k][q]
			a[k][p], a[k][q] = c*kp-s*kq, s*kp+c*kq
			a[p][k], a[q][k] = a[k][p], a[k][q]
		}
		vp, vq := vectors[k][p], vectors[k][q]
		vectors[k][p], vectors[k][q] = c*vp-s*vq, s*vp+c*vq
	}
}
