#include "go_asm.h"
#include "textflag.h"

// The loops of kernel.go with eight columns to a vector. VMULPS and VADDPS round
// each on its own, as the plain loops do; nothing here is fused or reordered.
//
// Throughout, the sums are at DI, the inputs at SI and the weights at DX; their
// rows are R8, R9 and R10 bytes apart, and CX terms are added. Where there are
// more than three rows, R13 and BX point to the fourth of sums and inputs.

// ROW adds the products of an input and 16 weights, in Y12 and Y13, to the row's
// sums.
#define ROW(input, s0, s1) \
	VBROADCASTSS input, Y14 \
	VMULPS Y12, Y14, Y15    \
	VMULPS Y13, Y14, Y14    \
	VADDPS Y15, s0, s0      \
	VADDPS Y14, s1, s1

#define ROWS1 \
	ROW((SI), Y0, Y1)

#define ROWS2 \
	ROWS1                   \
	ROW((SI)(R9*1), Y2, Y3)

#define ROWS4 \
	ROWS2                   \
	ROW((SI)(R9*2), Y4, Y5) \
	ROW((BX), Y6, Y7)

#define ROWS6 \
	ROWS4                     \
	ROW((BX)(R9*1), Y8, Y9)   \
	ROW((BX)(R9*2), Y10, Y11)

#define GET(row, s0, s1) \
	VMOVUPS 0 row, s0  \
	VMOVUPS 32 row, s1

#define PUT(row, s0, s1) \
	VMOVUPS s0, 0 row  \
	VMOVUPS s1, 32 row

#define GET1 \
	GET((DI), Y0, Y1)

#define GET2 \
	GET1                    \
	GET((DI)(R8*1), Y2, Y3)

#define GET4 \
	GET2                    \
	GET((DI)(R8*2), Y4, Y5) \
	GET((R13), Y6, Y7)

#define GET6 \
	GET4                       \
	GET((R13)(R8*1), Y8, Y9)   \
	GET((R13)(R8*2), Y10, Y11)

#define PUT1 \
	PUT((DI), Y0, Y1)

#define PUT2 \
	PUT1                    \
	PUT((DI)(R8*1), Y2, Y3)

#define PUT4 \
	PUT2                    \
	PUT((DI)(R8*2), Y4, Y5) \
	PUT((R13), Y6, Y7)

#define PUT6 \
	PUT4                       \
	PUT((R13)(R8*1), Y8, Y9)   \
	PUT((R13)(R8*2), Y10, Y11)

#define FOURTH \
	LEAQ (R8)(R8*2), R13 \
	LEAQ (R9)(R9*2), BX  \
	ADDQ DI, R13         \
	ADDQ SI, BX

// ARGUMENTS reads what a tile of a product needs. R11 points to the numbers of the
// R12 pages that are left, and R15 to where page 0 is.
#define ARGUMENTS \
	MOVQ p+0(FP), AX                 \
	MOVQ c+8(FP), DI                 \
	MOVQ a+16(FP), SI                \
	MOVQ b+24(FP), R15               \
	MOVQ product_cs(AX), R8          \
	MOVQ product_as(AX), R9          \
	MOVQ product_bs(AX), R10         \
	MOVQ product_pages+0(AX), R11    \
	MOVQ product_pages+8(AX), R12    \
	SHLQ $2, R8                      \
	SHLQ $2, R9                      \
	SHLQ $2, R10

// PAGE points to the weights of the next page, TERM to those of the next term, and
// NEXT moves sums and inputs on to the next page.
#define PAGE \
	MOVLQSX (R11), DX              \
	IMULQ   product_page(AX), DX   \
	LEAQ    (R15)(DX*4), DX        \
	MOVQ    product_depth(AX), CX

#define TERM \
	ADDQ $4, SI  \
	ADDQ R10, DX \
	DECQ CX

#define TERM4 \
	ADDQ $4, BX \
	TERM

#define NEXT \
	MOVQ product_cPage(AX), DX  \
	MOVQ product_aPage(AX), CX  \
	SUBQ product_depth(AX), CX  \
	LEAQ (DI)(DX*4), DI         \
	LEAQ (SI)(CX*4), SI         \
	ADDQ $4, R11                \
	DECQ R12

#define NEXT4 \
	MOVQ product_cPage(AX), DX  \
	MOVQ product_aPage(AX), CX  \
	SUBQ product_depth(AX), CX  \
	LEAQ (R13)(DX*4), R13       \
	LEAQ (BX)(CX*4), BX         \
	NEXT

// WIDEN turns eight bytes into floats and scales them.
#define WIDEN(bytes, scale, to) \
	VPMOVSXBD bytes, to     \
	VCVTDQ2PS to, to        \
	VMULPS    scale, to, to

// ARGUMENTSQ8 is that of Q8_0: R10 points to the scales of R11 blocks of 32 inputs
// each.
#define ARGUMENTSQ8 \
	MOVQ c+0(FP), DI        \
	MOVQ cs+8(FP), R8       \
	MOVQ a+16(FP), SI       \
	MOVQ as+24(FP), R9      \
	MOVQ bytes+32(FP), DX   \
	MOVQ scales+40(FP), R10 \
	MOVQ blocks+48(FP), R11 \
	SHLQ $2, R8             \
	SHLQ $2, R9

// func mulAdd6x16(p *product, c, a, b *float32)
TEXT ·mulAdd6x16(SB), NOSPLIT, $0-32
	ARGUMENTS
	FOURTH

page:
	PAGE
	GET6

loop:
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	ROWS6
	TERM4
	JNZ loop

	PUT6
	NEXT4
	JNZ page
	VZEROUPPER
	RET

// func mulAdd4x16(p *product, c, a, b *float32)
TEXT ·mulAdd4x16(SB), NOSPLIT, $0-32
	ARGUMENTS
	FOURTH

page:
	PAGE
	GET4

loop:
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	ROWS4
	TERM4
	JNZ loop

	PUT4
	NEXT4
	JNZ page
	VZEROUPPER
	RET

// func mulAdd2x16(p *product, c, a, b *float32)
TEXT ·mulAdd2x16(SB), NOSPLIT, $0-32
	ARGUMENTS

page:
	PAGE
	GET2

loop:
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	ROWS2
	TERM
	JNZ loop

	PUT2
	NEXT
	JNZ page
	VZEROUPPER
	RET

// func mulAdd1x16(p *product, c, a, b *float32)
TEXT ·mulAdd1x16(SB), NOSPLIT, $0-32
	ARGUMENTS

page:
	PAGE
	GET1

loop:
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	ROWS1
	TERM
	JNZ loop

	PUT1
	NEXT
	JNZ page
	VZEROUPPER
	RET

// func mulAdd1x32(p *product, c, a, b *float32)
TEXT ·mulAdd1x32(SB), NOSPLIT, $0-32
	ARGUMENTS

page:
	PAGE
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3

loop:
	VBROADCASTSS (SI), Y4
	VMULPS (DX), Y4, Y5
	VMULPS 32(DX), Y4, Y6
	VMULPS 64(DX), Y4, Y7
	VMULPS 96(DX), Y4, Y8
	VADDPS Y5, Y0, Y0
	VADDPS Y6, Y1, Y1
	VADDPS Y7, Y2, Y2
	VADDPS Y8, Y3, Y3
	TERM
	JNZ loop

	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	NEXT
	JNZ page
	VZEROUPPER
	RET

// func mulAdd1x8(p *product, c, a, b *float32)
TEXT ·mulAdd1x8(SB), NOSPLIT, $0-32
	ARGUMENTS

page:
	PAGE
	VMOVUPS (DI), Y0

loop:
	VBROADCASTSS (SI), Y4
	VMULPS (DX), Y4, Y5
	VADDPS Y5, Y0, Y0
	TERM
	JNZ loop

	VMOVUPS Y0, (DI)
	NEXT
	JNZ page
	VZEROUPPER
	RET

// func mulAddQ8x4(c *float32, cs int, a *float32, as int, bytes *int8, scales *float32, blocks int)
TEXT ·mulAddQ8x4(SB), NOSPLIT, $0-56
	ARGUMENTSQ8
	FOURTH
	GET4

block:
	VMOVUPS (R10), Y10
	VMOVUPS 32(R10), Y11
	MOVQ $32, CX

loop:
	WIDEN((DX), Y10, Y12)
	WIDEN(8(DX), Y11, Y13)
	ROWS4
	ADDQ $4, SI
	ADDQ $4, BX
	ADDQ $32, DX
	DECQ CX
	JNZ  loop

	ADDQ $128, R10
	DECQ R11
	JNZ  block

	PUT4
	VZEROUPPER
	RET

// func mulAddQ8x2(c *float32, cs int, a *float32, as int, bytes *int8, scales *float32, blocks int)
TEXT ·mulAddQ8x2(SB), NOSPLIT, $0-56
	ARGUMENTSQ8
	GET2

block:
	VMOVUPS (R10), Y10
	VMOVUPS 32(R10), Y11
	MOVQ $32, CX

loop:
	WIDEN((DX), Y10, Y12)
	WIDEN(8(DX), Y11, Y13)
	ROWS2
	ADDQ $4, SI
	ADDQ $32, DX
	DECQ CX
	JNZ  loop

	ADDQ $128, R10
	DECQ R11
	JNZ  block

	PUT2
	VZEROUPPER
	RET

// func mulAddQ8x1(c *float32, a *float32, blocks int, bytes *int8, scales *float32)
TEXT ·mulAddQ8x1(SB), NOSPLIT, $0-40
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
	WIDEN((DX), Y4, Y9)
	WIDEN(8(DX), Y5, Y10)
	WIDEN(16(DX), Y6, Y11)
	WIDEN(24(DX), Y7, Y12)
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
	WIDEN((DX), Y4, Y0)
	WIDEN(8(DX), Y5, Y1)
	WIDEN(16(DX), Y6, Y2)
	WIDEN(24(DX), Y7, Y3)
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

// EXP replaces Y1 by its exponential; see exp. AX points to the constants, Y13 and
// Y14 hold the bounds, and Y2 to Y4 are overwritten.
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
	VMOVUPS 352(AX), Y13      \
	VMOVUPS 384(AX), Y14

// func expsAVX2(x *float32, vectors int, most float32, sums *[8]float32, constants *[13][8]float32)
TEXT ·expsAVX2(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), DI
	MOVQ vectors+8(FP), CX
	VBROADCASTSS most+16(FP), Y15
	MOVQ sums+24(FP), R8
	MOVQ constants+32(FP), AX
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

// func swigluAVX2(gate, up *float32, vectors int, constants *[13][8]float32)
TEXT ·swigluAVX2(SB), NOSPLIT, $0-32
	MOVQ gate+0(FP), DI
	MOVQ up+8(FP), SI
	MOVQ vectors+16(FP), CX
	MOVQ constants+24(FP), AX
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
