#include "textflag.h"

// The loops of kernel.go with eight columns to a vector. VMULPS and VADDPS round
// each on its own, as the plain loops do; nothing here is fused or reordered.

// ROW1, ROW2 add the products of one input, broadcast in Y10, to one or two
// vectors of sums. The weights are in Y8 and Y9.
#define ROW1(s0) \
	VMULPS Y8, Y10, Y11   \
	VADDPS Y11, s0, s0

#define ROW2(s0, s1) \
	VMULPS Y8, Y10, Y11   \
	VMULPS Y9, Y10, Y12   \
	VADDPS Y11, s0, s0    \
	VADDPS Y12, s1, s1

// Each mulAdd has the sums at DI, the inputs at SI and the weights at DX; their
// rows are R8, R9 and R10 bytes apart, and CX terms are added.
#define LOAD \
	MOVQ c+0(FP), DI      \
	MOVQ cs+8(FP), R8     \
	MOVQ a+16(FP), SI     \
	MOVQ as+24(FP), R9    \
	MOVQ b+32(FP), DX     \
	MOVQ bs+40(FP), R10   \
	MOVQ depth+48(FP), CX \
	SHLQ $2, R8           \
	SHLQ $2, R9           \
	SHLQ $2, R10

// func mulAdd4x16(c *float32, cs int, a *float32, as int, b *float32, bs int, depth int)
TEXT ·mulAdd4x16(SB), NOSPLIT, $0-56
	LOAD
	LEAQ (R8)(R8*2), R11
	LEAQ (R9)(R9*2), R12
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(R8*1), Y2
	VMOVUPS 32(DI)(R8*1), Y3
	VMOVUPS (DI)(R8*2), Y4
	VMOVUPS 32(DI)(R8*2), Y5
	VMOVUPS (DI)(R11*1), Y6
	VMOVUPS 32(DI)(R11*1), Y7

loop:
	VMOVUPS (DX), Y8
	VMOVUPS 32(DX), Y9
	VBROADCASTSS (SI), Y10
	ROW2(Y0, Y1)
	VBROADCASTSS (SI)(R9*1), Y10
	ROW2(Y2, Y3)
	VBROADCASTSS (SI)(R9*2), Y10
	ROW2(Y4, Y5)
	VBROADCASTSS (SI)(R12*1), Y10
	ROW2(Y6, Y7)
	ADDQ $4, SI
	ADDQ R10, DX
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(R8*1)
	VMOVUPS Y3, 32(DI)(R8*1)
	VMOVUPS Y4, (DI)(R8*2)
	VMOVUPS Y5, 32(DI)(R8*2)
	VMOVUPS Y6, (DI)(R11*1)
	VMOVUPS Y7, 32(DI)(R11*1)
	VZEROUPPER
	RET

// func mulAdd2x16(c *float32, cs int, a *float32, as int, b *float32, bs int, depth int)
TEXT ·mulAdd2x16(SB), NOSPLIT, $0-56
	LOAD
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS (DI)(R8*1), Y2
	VMOVUPS 32(DI)(R8*1), Y3

loop:
	VMOVUPS (DX), Y8
	VMOVUPS 32(DX), Y9
	VBROADCASTSS (SI), Y10
	ROW2(Y0, Y1)
	VBROADCASTSS (SI)(R9*1), Y10
	ROW2(Y2, Y3)
	ADDQ $4, SI
	ADDQ R10, DX
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(R8*1)
	VMOVUPS Y3, 32(DI)(R8*1)
	VZEROUPPER
	RET

// func mulAdd1x32(c *float32, cs int, a *float32, as int, b *float32, bs int, depth int)
TEXT ·mulAdd1x32(SB), NOSPLIT, $0-56
	LOAD
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3

loop:
	VBROADCASTSS (SI), Y10
	VMOVUPS (DX), Y8
	VMOVUPS 32(DX), Y9
	ROW2(Y0, Y1)
	VMOVUPS 64(DX), Y8
	VMOVUPS 96(DX), Y9
	ROW2(Y2, Y3)
	ADDQ $4, SI
	ADDQ R10, DX
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
	RET

// func mulAdd1x8(c *float32, cs int, a *float32, as int, b *float32, bs int, depth int)
TEXT ·mulAdd1x8(SB), NOSPLIT, $0-56
	LOAD
	VMOVUPS (DI), Y0

loop:
	VMOVUPS (DX), Y8
	VBROADCASTSS (SI), Y10
	ROW1(Y0)
	ADDQ $4, SI
	ADDQ R10, DX
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// WIDEN turns the eight bytes at offset(DX) into floats, times a scale.
#define WIDEN(offset, scale, to) \
	VPMOVSXBD offset(DX), to  \
	VCVTDQ2PS to, to          \
	VMULPS    to, scale, to

// func mulAddQ8(c *float32, a *float32, blocks int, bytes *int8, scales *float32)
TEXT ·mulAddQ8(SB), NOSPLIT, $0-40
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ blocks+16(FP), BX
	MOVQ bytes+24(FP), DX
	MOVQ scales+32(FP), R8
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3

block:
	VMOVUPS (R8), Y4
	VMOVUPS 32(R8), Y5
	VMOVUPS 64(R8), Y6
	VMOVUPS 96(R8), Y7
	MOVQ $32, CX

loop:
	VBROADCASTSS (SI), Y8
	WIDEN(0, Y4, Y9)
	WIDEN(8, Y5, Y10)
	WIDEN(16, Y6, Y11)
	WIDEN(24, Y7, Y12)
	VMULPS Y9, Y8, Y9
	VMULPS Y10, Y8, Y10
	VMULPS Y11, Y8, Y11
	VMULPS Y12, Y8, Y12
	VADDPS Y9, Y0, Y0
	VADDPS Y10, Y1, Y1
	VADDPS Y11, Y2, Y2
	VADDPS Y12, Y3, Y3
	ADDQ $4, SI
	ADDQ $32, DX
	DECQ CX
	JNZ  loop

	ADDQ $128, R8
	DECQ BX
	JNZ  block

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
	RET

// func widenQ8(dst *float32, blocks int, bytes *int8, scales *float32)
TEXT ·widenQ8(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ blocks+8(FP), BX
	MOVQ bytes+16(FP), DX
	MOVQ scales+24(FP), R8

block:
	VMOVUPS (R8), Y4
	VMOVUPS 32(R8), Y5
	VMOVUPS 64(R8), Y6
	VMOVUPS 96(R8), Y7
	MOVQ $32, CX

loop:
	WIDEN(0, Y4, Y0)
	WIDEN(8, Y5, Y1)
	WIDEN(16, Y6, Y2)
	WIDEN(24, Y7, Y3)
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ $128, DI
	ADDQ $32, DX
	DECQ CX
	JNZ  loop

	ADDQ $128, R8
	DECQ BX
	JNZ  block
	VZEROUPPER
	RET

// EXP replaces Y1 by its exponential; see exp. Y13 and Y14 hold the bounds, AX
// points to expTable, and Y2 and Y3 are overwritten.
#define EXP \
	VMAXPS Y1, Y13, Y1        \
	VMINPS Y1, Y14, Y1        \
	VMULPS (AX), Y1, Y2       \
	VADDPS 32(AX), Y2, Y2     \
	VSUBPS 32(AX), Y2, Y3     \
	VMULPS 64(AX), Y3, Y4     \
	VSUBPS Y4, Y1, Y1         \
	VMULPS 96(AX), Y3, Y4     \
	VSUBPS Y4, Y1, Y1         \
	VMOVUPS 128(AX), Y3       \
	VMULPS Y1, Y3, Y3         \
	VADDPS 160(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 192(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 224(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 256(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 288(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 320(AX), Y3, Y3    \
	VMULPS Y1, Y3, Y3         \
	VADDPS 320(AX), Y3, Y3    \
	VPSLLD $23, Y2, Y2        \
	VPADDD Y2, Y3, Y1

#define BOUNDS \
	LEAQ ·expTable(SB), AX    \
	VMOVUPS 352(AX), Y13      \
	VMOVUPS 384(AX), Y14

// func expsAVX2(x *float32, vectors int, most float32, sums *[8]float32)
TEXT ·expsAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ vectors+8(FP), CX
	VBROADCASTSS most+16(FP), Y15
	MOVQ sums+24(FP), R8
	BOUNDS
	VMOVUPS (R8), Y0

loop:
	VMOVUPS (DI), Y1
	VSUBPS Y15, Y1, Y1
	EXP
	VMOVUPS Y1, (DI)
	VADDPS Y1, Y0, Y0
	ADDQ $32, DI
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (R8)
	VZEROUPPER
	RET

// func maxAVX2(x *float32, vectors int, most *[8]float32)
TEXT ·maxAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ vectors+8(FP), CX
	MOVQ most+16(FP), R8
	VMOVUPS (R8), Y0

loop:
	VMOVUPS (DI), Y1
	VMAXPS Y0, Y1, Y0
	ADDQ $32, DI
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (R8)
	VZEROUPPER
	RET

// func swigluAVX2(gate, up *float32, vectors int)
TEXT ·swigluAVX2(SB), NOSPLIT, $0-24
	MOVQ gate+0(FP), DI
	MOVQ up+8(FP), SI
	MOVQ vectors+16(FP), CX
	BOUNDS
	VPCMPEQD Y15, Y15, Y15
	VPSLLD $31, Y15, Y15
	VMOVUPS 320(AX), Y12

loop:
	VMOVUPS (DI), Y0
	VXORPS Y15, Y0, Y1
	EXP
	VADDPS Y12, Y1, Y1
	VDIVPS Y1, Y0, Y0
	VMULPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	DECQ CX
	JNZ  loop

	VZEROUPPER
	RET
