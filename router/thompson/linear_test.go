package thompson

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// drawVector draws features as they may be.
func drawVector(t *rapid.T, label string) (x vector) {
	for i := range x {
		x[i] = rapid.Float64Range(0, 1).Draw(t, label)
	}
	return x
}

// covariance returns root·rootᵀ.
func (m *linear) covariance() (c matrix) {
	for i := range features {
		for j := range features {
			for k := range features {
				c[i][j] += m.root[i][k] * m.root[j][k]
			}
		}
	}
	return c
}

// identity fails unless a·b is the identity.
func identity(t rapid.TB, a, b *matrix, slack float64) {
	t.Helper()
	for i := range features {
		for j := range features {
			got, want := 0.0, 0.0
			if i == j {
				want = 1
			}
			for k := range features {
				got += a[i][k] * b[k][j]
			}
			if math.Abs(got-want) > slack {
				t.Fatalf("element %d, %d is %v, want %v", i, j, got, want)
			}
		}
	}
}

// What is learned one reward at a time is what the sums say, and what is derived
// from it solves their equations.
func TestLinearLearns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ridge := rapid.Float64Range(0.1, 10).Draw(t, "ridge")
		forget := rapid.Float64Range(0.5, 1).Draw(t, "forget")
		m := newLinear(ridge)
		var precision matrix
		var moment vector
		for i := range features {
			precision[i][i] = ridge
		}
		for range rapid.IntRange(0, 30).Draw(t, "lessons") {
			x, reward := drawVector(t, "x"), rapid.Float64Range(0, 1).Draw(t, "reward")
			m.learn(&x, reward, forget, ridge)
			for i := range features {
				for j := range features {
					precision[i][j] = forget*precision[i][j] + x[i]*x[j]
				}
				precision[i][i] += (1 - forget) * ridge
				moment[i] = forget*moment[i] + reward*x[i]
			}
		}
		for i := range features {
			for j := range features {
				if math.Abs(m.precision[i][j]-precision[i][j]) > 1e-9 || m.precision[i][j] != m.precision[j][i] {
					t.Fatalf("precision %d, %d is %v, want %v", i, j, m.precision[i][j], precision[i][j])
				}
			}
		}
		m.derive()
		c := m.covariance()
		identity(t, &c, &precision, 1e-8)
		for i := range features {
			got := 0.0
			for j := range features {
				got += precision[i][j] * m.mean[j]
			}
			if math.Abs(got-moment[i]) > 1e-8 {
				t.Fatalf("precision·mean is %v at %d, want %v", got, i, moment[i])
			}
		}
	})
}

// Samples have the mean and the covariance that is believed.
func TestLinearSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := newLinear(1)
	for range 40 {
		var x vector
		for i := range x {
			x[i] = r.Float64()
		}
		m.learn(&x, x[3], 0.99, 1)
	}
	const n, scale = 40_000, 0.5
	var mean vector
	var square matrix
	for range n {
		w := m.sample(r, scale)
		for i := range features {
			mean[i] += w[i] / n
			for j := range features {
				square[i][j] += (w[i] - m.mean[i]) * (w[j] - m.mean[j]) / (n * scale * scale)
			}
		}
	}
	c := m.covariance()
	for i := range features {
		if math.Abs(mean[i]-m.mean[i]) > 0.02 {
			t.Errorf("mean %d is %v, want %v", i, mean[i], m.mean[i])
		}
		for j := range features {
			if math.Abs(square[i][j]-c[i][j]) > 0.03 {
				t.Errorf("covariance %d, %d is %v, want %v", i, j, square[i][j], c[i][j])
			}
		}
	}
}

// What fades keeps its mean, and its covariance grows.
func TestLinearFades(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newLinear(1)
		for range 10 {
			x := drawVector(t, "x")
			m.learn(&x, rapid.Float64Range(0, 1).Draw(t, "reward"), 1, 1)
		}
		m.derive()
		mean, before := m.mean, m.covariance()
		part := rapid.Float64Range(0.1, 1).Draw(t, "part")
		m.fade(part)
		m.derive()
		after := m.covariance()
		for i := range features {
			if math.Abs(m.mean[i]-mean[i]) > 1e-9 || math.Abs(after[i][i]*part-before[i][i]) > 1e-9 {
				t.Fatalf("weight %d was %v ± %v, is %v ± %v", i, mean[i], before[i][i], m.mean[i], after[i][i])
			}
		}
	})
}

// A matrix that is not positive definite has samples all the same: jitter helps
// where it is almost, and eigenvalues have a floor where it is not.
func TestLinearOnTheEdge(t *testing.T) {
	var singular, indefinite matrix
	for i := range features {
		for j := range features {
			singular[i][j] = 1
		}
		indefinite[i][i] = float64(i - 1)
	}
	for name, precision := range map[string]matrix{"zero": {}, "singular": singular, "indefinite": indefinite} {
		m := linear{precision: precision}
		w := m.sample(rand.New(rand.NewPCG(1, 1)), 1)
		for i := range w {
			if math.IsNaN(w[i]) || math.IsInf(w[i], 0) {
				t.Errorf("%s: weight %d is %v", name, i, w[i])
			}
		}
		if name != "indefinite" {
			continue
		}
		if want := 1 / math.Sqrt(eigenFloor); math.Abs(m.root[0][0])-want > 1 || math.Abs(m.root[8][8]-1/math.Sqrt(7)) > 1e-12 {
			t.Errorf("deviations are %v and %v, want those of the floor and of 7", m.root[0][0], m.root[8][8])
		}
	}
}

func TestCholesky(t *testing.T) {
	if _, ok := cholesky(&matrix{}, 0); ok {
		t.Error("zero has a root")
	}
	rapid.Check(t, func(t *rapid.T) {
		var a matrix
		for range 12 {
			x := drawVector(t, "x")
			for i := range features {
				for j := range features {
					a[i][j] += x[i] * x[j]
				}
			}
		}
		l, ok := cholesky(&a, 0.5)
		if !ok {
			t.Fatal("no root")
		}
		for i := range features {
			for j := range features {
				got, want := 0.0, a[i][j]
				if i == j {
					want += 0.5
				}
				for k := range features {
					got += l[i][k] * l[j][k]
				}
				if math.Abs(got-want) > 1e-9 || j > i && l[i][j] != 0 {
					t.Fatalf("element %d, %d of the square is %v, want %v", i, j, got, want)
				}
			}
		}
	})
}

// Eigenvectors are orthogonal, and a matrix does with them what their values say.
func TestEigen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a matrix
		for i := range features {
			for j := range i + 1 {
				a[i][j] = rapid.Float64Range(-1, 1).Draw(t, "element")
				a[j][i] = a[i][j]
			}
		}
		values, vectors := eigen(a)
		var transposed matrix
		for i := range features {
			for j := range features {
				transposed[j][i] = vectors[i][j]
				got := 0.0
				for k := range features {
					got += a[i][k] * vectors[k][j]
				}
				if want := values[j] * vectors[i][j]; math.Abs(got-want) > 1e-9 {
					t.Fatalf("a·v is %v at %d, %d, want %v", got, i, j, want)
				}
			}
		}
		identity(t, &transposed, &vectors, 1e-9)
	})
}
