// Command protoc makes Go of the .proto files of a folder, with no compiler but
// those of Go: protocompile reads them, and the plugins write what they mean.
//
//	go -C tools run ./protoc -in ../proto -out .. FILE...
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const module = "github.com/dynago/dynago"

func main() {
	in := flag.String("in", ".", "where the files are")
	out := flag.String("out", ".", "the root of the module")
	flag.Parse()
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(plugin, *in, *out, flag.Args()); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", plugin, err)
			os.Exit(1)
		}
	}
}

func generate(plugin, in, out string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{in}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("module=" + module),
		ProtoFile:      descriptors(compiled),
	})
	if err != nil {
		return err
	}
	run := exec.Command("go", "tool", plugin)
	run.Stdin, run.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := run.Output()
	if err != nil {
		return err
	}
	var made pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &made); err != nil {
		return err
	}
	if made.Error != nil {
		return fmt.Errorf("%s", *made.Error)
	}
	for _, f := range made.File {
		path := filepath.Join(out, f.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// descriptors returns files with what they import before them.
func descriptors(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	return all
}
