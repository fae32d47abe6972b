package tokenizer

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// pieceType is the type of a piece in a SentencePiece model.
type pieceType uint8

// The values of ModelProto.SentencePiece.Type.
const (
	pieceNormal      pieceType = 1
	pieceUnknown     pieceType = 2 // stands for what no piece spells
	pieceControl     pieceType = 3 // structure, which no text yields
	pieceUserDefined pieceType = 4 // always cut out of the text
	pieceUnused      pieceType = 5 // never an outcome, but merged on
	pieceByte        pieceType = 6 // <0xNN>
)

// The values of TrainerSpec.ModelType that can be read.
const (
	trainedUnigram = 1
	trainedBPE     = 2
	trainedChar    = 4
)

// sentencePieceFile is what a SentencePiece model says that matters for use: a
// protocol buffer, ModelProto of sentencepiece_model.proto.
type sentencePieceFile struct {
	pieces []sentencePiece

	modelType    uint64
	byteFallback bool
	suffixes     bool // a blank ends a word rather than beginning it
	unkSurface   string

	charsmap     []byte
	dummyPrefix  bool // a text gets a blank of its own
	removeBlanks bool // blanks at the ends, and all of a run but one, go
	escapeBlanks bool // a blank is written U+2581
}

// space returns how a blank is written.
func (f *sentencePieceFile) space() string {
	if f.escapeBlanks {
		return blank
	}
	return " "
}

type sentencePiece struct {
	text  string
	score float32
	kind  pieceType
}

// protoField is one field of a message: its number and, by its wire type, its
// bytes or its value.
type protoField struct {
	number protowire.Number
	wire   protowire.Type
	bytes  []byte
	value  uint64
}

// eachField calls f for the fields of a message.
func eachField(message []byte, f func(protoField) error) error {
	for at := 0; at < len(message); {
		number, wire, n := protowire.ConsumeTag(message[at:])
		if n < 0 {
			return fmt.Errorf("byte %d: %w", at, protowire.ParseError(n))
		}
		field := protoField{number: number, wire: wire}
		rest := message[at+n:]
		var size int
		switch wire {
		case protowire.VarintType:
			field.value, size = protowire.ConsumeVarint(rest)
		case protowire.BytesType:
			field.bytes, size = protowire.ConsumeBytes(rest)
		case protowire.Fixed32Type:
			var v uint32
			v, size = protowire.ConsumeFixed32(rest)
			field.value = uint64(v)
		default:
			size = protowire.ConsumeFieldValue(number, wire, rest)
		}
		if size < 0 {
			return fmt.Errorf("byte %d: field %d: %w", at, number, protowire.ParseError(size))
		}
		if err := f(field); err != nil {
			return err
		}
		at += n + size
	}
	return nil
}

// is tells whether the field has this number, and the wire type that it must.
func (f protoField) is(number protowire.Number, wire protowire.Type) (bool, error) {
	if f.number != number {
		return false, nil
	}
	if f.wire != wire {
		return false, fmt.Errorf("field %d: has wire type %d, want %d", number, f.wire, wire)
	}
	return true, nil
}

// parseSentencePiece reads a ModelProto.
func parseSentencePiece(model []byte) (*sentencePieceFile, error) {
	file := &sentencePieceFile{
		modelType: trainedUnigram, unkSurface: " \u2047 ",
		dummyPrefix: true, removeBlanks: true, escapeBlanks: true,
	}
	specs := map[protowire.Number]bool{}
	err := eachField(model, func(field protoField) error {
		var err error
		specs[field.number] = true
		path := ""
		switch field.number {
		case 1:
			path = fmt.Sprintf("pieces[%d]", len(file.pieces))
		case 2:
			path = "trainer_spec"
		case 3:
			path = "normalizer_spec"
		case 5:
			path = "denormalizer_spec"
		default:
			return nil
		}
		if _, err := field.is(field.number, protowire.BytesType); err != nil {
			return err
		}
		switch field.number {
		case 1:
			err = file.parsePiece(field.bytes)
		case 2:
			err = eachField(field.bytes, file.trainerField)
		case 3:
			err = eachField(field.bytes, file.normalizerField)
		case 5:
			err = eachField(field.bytes, denormalizerField)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	switch {
	case err != nil:
	case len(file.pieces) == 0:
		err = errors.New("pieces: has none")
	// All models have them, behind the pieces.
	case !specs[2] || !specs[3]:
		err = errors.New("trainer_spec, normalizer_spec: must both be there; the file is cut short or no SentencePiece model")
	}
	return file, err
}

func (file *sentencePieceFile) parsePiece(message []byte) error {
	p := sentencePiece{kind: pieceNormal}
	err := eachField(message, func(f protoField) error {
		if ok, err := f.is(1, protowire.BytesType); ok || err != nil {
			p.text = string(f.bytes)
			return err
		}
		if ok, err := f.is(2, protowire.Fixed32Type); ok || err != nil {
			p.score = math.Float32frombits(uint32(f.value))
			return err
		}
		if ok, err := f.is(3, protowire.VarintType); ok || err != nil {
			if err == nil && (f.value < uint64(pieceNormal) || f.value > uint64(pieceByte)) {
				return fmt.Errorf("type: %d is not known", f.value)
			}
			p.kind = pieceType(f.value)
			return err
		}
		return nil
	})
	if err == nil && p.text == "" {
		err = errors.New("piece: must not be empty")
	}
	if err == nil && len(p.text) > maxRanked {
		err = fmt.Errorf("piece: has %d bytes, want at most %d", len(p.text), maxRanked)
	}
	if err == nil && p.score != p.score {
		err = errors.New("score: must be a number")
	}
	if err == nil && len(file.pieces) >= maxID {
		err = fmt.Errorf("is beyond the %d pieces that are supported", maxID)
	}
	file.pieces = append(file.pieces, p)
	return err
}

func (file *sentencePieceFile) trainerField(f protoField) error {
	if ok, err := f.is(3, protowire.VarintType); ok || err != nil {
		file.modelType = f.value
		if err == nil && f.value != trainedUnigram && f.value != trainedBPE && f.value != trainedChar {
			return fmt.Errorf("model_type: %d is not supported: only unigram (1), BPE (2) and char (4) are", f.value)
		}
		return err
	}
	if ok, err := f.is(24, protowire.VarintType); ok || err != nil {
		file.suffixes = f.value != 0
		return err
	}
	if ok, err := f.is(35, protowire.VarintType); ok || err != nil {
		file.byteFallback = f.value != 0
		return err
	}
	if ok, err := f.is(44, protowire.BytesType); ok || err != nil {
		file.unkSurface = string(f.bytes)
		return err
	}
	return nil
}

func (file *sentencePieceFile) normalizerField(f protoField) error {
	if ok, err := f.is(2, protowire.BytesType); ok || err != nil {
		file.charsmap = f.bytes
		return err
	}
	for number, flag := range map[protowire.Number]*bool{3: &file.dummyPrefix, 4: &file.removeBlanks, 5: &file.escapeBlanks} {
		if ok, err := f.is(number, protowire.VarintType); ok || err != nil {
			*flag = f.value != 0
			return err
		}
	}
	return nil
}

// denormalizerField accepts a denormalizer that does nothing.
func denormalizerField(f protoField) error {
	if f.number == 2 && len(f.bytes) > 0 {
		return errors.New("precompiled_charsmap: is not supported")
	}
	return nil
}
