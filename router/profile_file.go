package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/dynago/dynago/engine"
)

// PolicyFile is a router policy file: profiles of the queue, for all models and
// for some of them, and which policies pick workers. It is YAML of this shape:
//
//	default_policy_family: chat
//	uncached_isl_buckets:             # the first from 0, then increasing
//	  - {min_tokens: 0,    bucket: hot}
//	  - {min_tokens: 6000, bucket: cold}
//	policy_classes:                   # each family has one class for each bucket
//	  - name: chat-hot
//	    policy_family: chat
//	    cache_bucket: hot
//	    queue_policy: fcfs            # or lcfs or wspt
//	    quantum: 8192                 # tokens in its turn
//	    prefill_busy_threshold_frac: 1.5
//	  - name: chat-cold
//	    policy_family: chat
//	    cache_bucket: cold
//	    quantum: 2048
//	    prefill_busy_threshold: 12000
//	    request_queue_limit_per_worker: 16
//	    raw_isl_token_queue_limit_per_worker: 262144
//	    cached_token_queue_limit_per_worker: 131072
//	  - {name: nightly, quantum: 256} # of no family: requests name it
//	models:                           # the same three keys, instead of those above
//	  acme/llm: {…}
//	worker_selection:
//	  decode: least-busy              # also aggregated, prefill, encode
//	  instances:
//	    - {name: least-busy, type: acme-least-busy, parameters: {}}
//
// A class waits only if it has a threshold.
type PolicyFile struct {
	// Selection is nil if the file says nothing of it.
	Selection *Selection

	root   *Profile
	models map[string]*Profile
}

// Selection says which policy picks workers of which role.
type Selection struct {
	// Instances are the policies by name.
	Instances []Instance
	// Roles name the instance for a role, or [DefaultInstance].
	Roles map[engine.Role]string
}

// DefaultInstance is the name of the built-in policy.
const DefaultInstance = "default"

// Instance is a policy with its parameters, which nobody has looked at yet.
type Instance struct {
	Name, Type string
	Parameters map[string]any
}

// Profile returns the profile for a model, or nil if the file has none for it.
// A nil file has none.
func (f *PolicyFile) Profile(model string) *Profile {
	if f == nil {
		return nil
	}
	if p := f.models[model]; p != nil {
		return p
	}
	return f.root
}

// ParsePolicyFile reads a policy file. Errors name the line, the key, its value,
// and what would be right; of several faults they tell one.
func ParsePolicyFile(data []byte) (*PolicyFile, error) {
	f := new(PolicyFile)
	var docs []yaml.Node
	err := yaml.Load(data, &docs, yaml.WithAllDocuments())
	switch {
	case err != nil:
	case len(docs) == 0:
		err = errNoPolicies
	case len(docs) > 1:
		err = fmt.Errorf("line %d: a second document, want one", docs[1].Line)
	default:
		err = f.read(docs[0].Content[0])
	}
	if err != nil {
		return nil, fmt.Errorf("router policy file: %w", err)
	}
	return f, nil
}

var errNoPolicies = errors.New("it says nothing, want a profile, models or worker_selection")

// profileKeys make up a profile.
var profileKeys = []string{"default_policy_family", "uncached_isl_buckets", "policy_classes"}

func (f *PolicyFile) read(root *yaml.Node) error {
	var fault error
	top := entry{node: root, fault: &fault}
	all := top.mapping(append([]string{"models", "worker_selection"}, profileKeys...)...)
	if fault != nil {
		return fault
	}
	if slices.ContainsFunc(profileKeys, all.has) {
		f.root = all.profile()
	}
	if all.has("models") {
		f.models = make(map[string]*Profile)
		for _, of := range all.get("models").pairs() {
			if of.key == "" {
				of.wrong("a model needs a name")
			}
			f.models[of.key] = of.mapping(profileKeys...).profile()
		}
	}
	if all.has("worker_selection") {
		f.Selection = all.get("worker_selection").selection()
	}
	if fault == nil && f.root == nil && len(f.models) == 0 && f.Selection == nil {
		return errNoPolicies
	}
	return fault
}

// profile reads the three keys of a profile.
func (m mapping) profile() *Profile {
	p := &Profile{
		explicit: make(map[string]*Class),
		families: make(map[string][]*Class),
		standard: m.need("default_policy_family").name(),
	}
	buckets := m.need("uncached_isl_buckets").buckets(p)
	classes := m.need("policy_classes")
	for _, e := range classes.list() {
		p.add(e, buckets)
	}
	if *m.of.fault != nil {
		return nil
	}
	for _, c := range p.Classes {
		if p.explicit[c.Name] != nil && p.families[c.Name] != nil {
			classes.wrong("class %q has the name of a family, want another name", c.Name)
		}
		if i := slices.Index(p.families[c.Family], nil); i >= 0 {
			classes.wrong("family %q has no class for bucket %q, want one", c.Family, buckets[i])
		}
	}
	if p.families[p.standard] == nil {
		m.need("default_policy_family").wrong("got %q, want a family that has classes", p.standard)
	}
	return p
}

// buckets reads where the buckets begin, and returns their names.
func (e entry) buckets(p *Profile) []string {
	var names []string
	for i, of := range e.list() {
		m := of.mapping("min_tokens", "bucket")
		tokens, name := m.need("min_tokens").whole(0), m.need("bucket").name()
		switch {
		case *e.fault != nil:
			return nil
		case i == 0 && tokens != 0:
			m.need("min_tokens").wrong("got %d, want 0 for the first bucket", tokens)
		case i > 0 && tokens <= p.buckets[i-1]:
			m.need("min_tokens").wrong("got %d, want more than %d, where the bucket before begins", tokens, p.buckets[i-1])
		case slices.Contains(names, name):
			m.need("bucket").wrong("got %q, which is the name of another bucket", name)
		}
		p.buckets, names = append(p.buckets, tokens), append(names, name)
	}
	return names
}

// add reads a class.
func (p *Profile) add(e entry, buckets []string) {
	m := e.mapping("name", "policy_family", "cache_bucket", "queue_policy", "quantum",
		"prefill_busy_threshold", "prefill_busy_threshold_frac",
		"request_queue_limit_per_worker", "raw_isl_token_queue_limit_per_worker", "cached_token_queue_limit_per_worker")
	c := &Class{
		place:                    len(p.Classes),
		Order:                    FCFS,
		Name:                     m.need("name").name(),
		Quantum:                  m.need("quantum").whole(1),
		PrefillBusyThreshold:     m.count("prefill_busy_threshold"),
		PrefillBusyThresholdFrac: m.fraction("prefill_busy_threshold_frac"),
		RequestLimit:             m.count("request_queue_limit_per_worker"),
		TokenLimit:               m.count("raw_isl_token_queue_limit_per_worker"),
		CachedTokenLimit:         m.count("cached_token_queue_limit_per_worker"),
	}
	if m.has("queue_policy") {
		var err error
		if c.Order, err = ParseQueueOrder(m.get("queue_policy").text()); err != nil {
			m.get("queue_policy").wrong("%w", err)
		}
	}
	if *e.fault == nil && slices.ContainsFunc(p.Classes, func(other *Class) bool { return other.Name == c.Name }) {
		m.need("name").wrong("got %q, which is the name of another class", c.Name)
	}
	p.Classes = append(p.Classes, c)
	if !m.has("policy_family") && !m.has("cache_bucket") {
		p.explicit[c.Name] = c
		return
	}
	c.Family, c.Bucket = m.need("policy_family").name(), m.need("cache_bucket").name()
	if *e.fault != nil {
		return
	}
	i := slices.Index(buckets, c.Bucket)
	if i < 0 {
		m.need("cache_bucket").wrong("got %q, want one of the buckets: %s", c.Bucket, strings.Join(buckets, ", "))
		return
	}
	if p.families[c.Family] == nil {
		p.families[c.Family] = make([]*Class, len(buckets))
	}
	if taken := p.families[c.Family][i]; taken != nil {
		e.wrong("family %q has a class for bucket %q already: %s", c.Family, c.Bucket, taken.Name)
		return
	}
	p.families[c.Family][i] = c
}

// roleKeys are what roles are called in the file.
var roleKeys = []struct {
	key  string
	role engine.Role
}{
	{"aggregated", engine.Aggregated},
	{"prefill", engine.Prefill},
	{"decode", engine.Decode},
	{"encode", engine.Encode},
}

func (e entry) selection() *Selection {
	s := &Selection{Roles: make(map[engine.Role]string)}
	m := e.mapping("aggregated", "prefill", "decode", "encode", "instances")
	names := []string{DefaultInstance}
	if m.has("instances") {
		for _, of := range m.get("instances").list() {
			fields := of.mapping("name", "type", "parameters")
			i := Instance{Name: fields.need("name").name(), Type: fields.need("type").name()}
			switch {
			case *e.fault != nil:
				return nil
			case i.Name == DefaultInstance:
				fields.need("name").wrong("%q is the built-in policy, want another name", i.Name)
			case slices.Contains(names, i.Name):
				fields.need("name").wrong("got %q, which is the name of another instance", i.Name)
			}
			if fields.has("parameters") {
				i.Parameters = fields.get("parameters").anything()
			}
			s.Instances, names = append(s.Instances, i), append(names, i.Name)
		}
	}
	for _, of := range roleKeys {
		if !m.has(of.key) {
			continue
		}
		name := m.get(of.key).name()
		if *e.fault == nil && !slices.Contains(names, name) {
			m.get(of.key).wrong("got %q, want an instance: %s", name, strings.Join(names, ", "))
		}
		s.Roles[of.role] = name
	}
	if *e.fault == nil && len(s.Instances) == 0 && len(s.Roles) == 0 {
		e.wrong("it says nothing, want a role or instances")
	}
	return s
}
